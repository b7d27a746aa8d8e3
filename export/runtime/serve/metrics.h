// What /metrics tells, in the text format of Prometheus.
#ifndef SEQLAB_SERVE_METRICS_H_
#define SEQLAB_SERVE_METRICS_H_

#include <array>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "seqlab/engine.h"

namespace seqlab::serve {

// Samples, gathered by metric.
class MetricLines {
 public:
  // Adds a sample of a metric of a type; `suffix` is that of a histogram's part.
  void Add(const std::string& name, const char* type, const char* suffix, const std::string& labels, double value);
  std::string Text() const;

 private:
  struct Metric {
    std::string name, type, lines;
  };
  std::vector<Metric> metrics_;
};

// Formats a label, such as `model="a"`.
std::string Label(const std::string& name, const std::string& value);

// A histogram of seconds.
class Histogram {
 public:
  void Add(double seconds);
  void AddTo(MetricLines& lines, const std::string& name, const std::string& labels) const;

 private:
  static constexpr std::array<double, 12> kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                                     0.1,   0.25,   0.5,   1,    2.5,   10};
  std::array<int64_t, kBounds.size() + 1> counts_{};
  double sum_ = 0.0;
};

// How long the requests of a model wait for their first token, and for each further one.
class Timings : public std::enable_shared_from_this<Timings> {
 public:
  // A request's clock, which starts now.
  class Clock {
   public:
    explicit Clock(std::shared_ptr<Timings> timings) : timings_(std::move(timings)) {}
    void Token();

   private:
    std::shared_ptr<Timings> timings_;
    std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
    bool first_ = true;
  };
  Clock Begin() { return Clock(shared_from_this()); }
  void Add(const std::string& labels, MetricLines& lines) const;

 private:
  mutable std::mutex mutex_;
  Histogram first_, next_;
};

// Adds the counts of a model's engine.
void AddEngine(const EngineStats& stats, const std::string& labels, MetricLines& lines);

}  // namespace seqlab::serve

#endif  // SEQLAB_SERVE_METRICS_H_
