// What /metrics tells, in the text format of Prometheus.
#ifndef SEQLAB_SERVE_METRICS_H_
#define SEQLAB_SERVE_METRICS_H_

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "seqlab/engine.h"

namespace seqlab::serve {

// A histogram of seconds.
class Histogram {
 public:
  void Add(double seconds);
  // Lines of a metric with these labels, such as `model="a"`.
  std::string Lines(const std::string& name, const std::string& labels) const;

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
  std::string Lines(const std::string& labels) const;

 private:
  mutable std::mutex mutex_;
  Histogram first_, next_;
};

// Lines of a model's engine.
std::string LinesOf(const EngineStats& stats, const std::string& labels);

}  // namespace seqlab::serve

#endif  // SEQLAB_SERVE_METRICS_H_
