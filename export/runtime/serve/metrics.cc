#include "metrics.h"

#include <algorithm>
#include <limits>

#include "error.h"

namespace seqlab::serve {

void MetricLines::Add(const std::string& name, const char* type, const char* suffix, const std::string& labels,
                      double value) {
  auto metric = std::find_if(metrics_.begin(), metrics_.end(), [&](const Metric& one) { return one.name == name; });
  if (metric == metrics_.end()) metric = metrics_.insert(metric, {name, type, ""});
  std::ostringstream number = ClassicStream();
  number << std::setprecision(std::numeric_limits<double>::max_digits10) << value;
  metric->lines += Join(name, suffix, "{", labels, "} ", number.str(), "\n");
}

std::string MetricLines::Text() const {
  std::string text;
  for (const Metric& metric : metrics_) text += Join("# TYPE ", metric.name, " ", metric.type, "\n", metric.lines);
  return text;
}

std::string Label(const std::string& name, const std::string& value) {
  std::string escaped;
  for (const char c : value) {
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return Join(name, "=\"", escaped, "\"");
}

void Histogram::Add(double seconds) {
  const auto place = std::lower_bound(kBounds.begin(), kBounds.end(), seconds) - kBounds.begin();
  ++counts_[static_cast<size_t>(place)];
  sum_ += seconds;
}

void Histogram::AddTo(MetricLines& lines, const std::string& name, const std::string& labels) const {
  int64_t count = 0;
  for (size_t place = 0; place < counts_.size(); ++place) {
    count += counts_[place];
    const std::string bound = place < kBounds.size() ? Join(kBounds[place]) : "+Inf";
    lines.Add(name, "histogram", "_bucket", Join(labels, ",", Label("le", bound)), static_cast<double>(count));
  }
  lines.Add(name, "histogram", "_sum", labels, sum_);
  lines.Add(name, "histogram", "_count", labels, static_cast<double>(count));
}

void Timings::Clock::Token() {
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(timings_->mutex_);
  (first_ ? timings_->first_ : timings_->next_).Add(std::chrono::duration<double>(now - last_).count());
  first_ = false;
  last_ = now;
}

void Timings::Add(const std::string& labels, MetricLines& lines) const {
  const std::lock_guard lock(mutex_);
  first_.AddTo(lines, "seqlab_time_to_first_token_seconds", labels);
  next_.AddTo(lines, "seqlab_time_between_tokens_seconds", labels);
}

void AddEngine(const EngineStats& stats, const std::string& labels, MetricLines& lines) {
  const std::pair<const char*, int64_t> gauges[] = {{"seqlab_requests_running", stats.running},
                                                    {"seqlab_requests_waiting", stats.waiting},
                                                    {"seqlab_state_bytes", stats.memory},
                                                    {"seqlab_prefix_bytes", stats.prefix_memory}};
  const std::pair<const char*, int64_t> counters[] = {{"seqlab_steps_total", stats.steps},
                                                      {"seqlab_new_tokens_total", stats.new_tokens},
                                                      {"seqlab_prompt_tokens_total", stats.prompt_tokens},
                                                      {"seqlab_cached_tokens_total", stats.cached_tokens},
                                                      {"seqlab_requests_finished_total", stats.finished},
                                                      {"seqlab_requests_cancelled_total", stats.cancelled},
                                                      {"seqlab_requests_failed_total", stats.failed}};
  for (const auto& [name, value] : gauges) lines.Add(name, "gauge", "", labels, static_cast<double>(value));
  for (const auto& [name, value] : counters) lines.Add(name, "counter", "", labels, static_cast<double>(value));
}

}  // namespace seqlab::serve
