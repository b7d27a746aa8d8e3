#include "metrics.h"

#include <algorithm>

#include "error.h"

namespace seqlab::serve {

void Histogram::Add(double seconds) {
  const auto place = std::lower_bound(kBounds.begin(), kBounds.end(), seconds) - kBounds.begin();
  ++counts_[static_cast<size_t>(place)];
  sum_ += seconds;
}

std::string Histogram::Lines(const std::string& name, const std::string& labels) const {
  std::string lines;
  int64_t count = 0;
  for (size_t place = 0; place < counts_.size(); ++place) {
    count += counts_[place];
    const std::string bound = place < kBounds.size() ? Join(kBounds[place]) : "+Inf";
    lines += Join(name, "_bucket{", labels, ",le=\"", bound, "\"} ", count, "\n");
  }
  return lines + Join(name, "_sum{", labels, "} ", sum_, "\n", name, "_count{", labels, "} ", count, "\n");
}

void Timings::Clock::Token() {
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(timings_->mutex_);
  (first_ ? timings_->first_ : timings_->next_).Add(std::chrono::duration<double>(now - last_).count());
  first_ = false;
  last_ = now;
}

std::string Timings::Lines(const std::string& labels) const {
  const std::lock_guard lock(mutex_);
  return first_.Lines("seqlab_time_to_first_token_seconds", labels) +
         next_.Lines("seqlab_time_between_tokens_seconds", labels);
}

std::string LinesOf(const EngineStats& stats, const std::string& labels) {
  const std::pair<const char*, int64_t> lines[] = {{"requests_running", stats.running},
                                                   {"requests_waiting", stats.waiting},
                                                   {"state_bytes", stats.memory},
                                                   {"prefix_bytes", stats.prefix_memory},
                                                   {"steps_total", stats.steps},
                                                   {"new_tokens_total", stats.new_tokens},
                                                   {"prompt_tokens_total", stats.prompt_tokens},
                                                   {"cached_tokens_total", stats.cached_tokens},
                                                   {"requests_finished_total", stats.finished},
                                                   {"requests_cancelled_total", stats.cancelled},
                                                   {"requests_failed_total", stats.failed}};
  std::string text;
  for (const auto& [name, value] : lines) text += Join("seqlab_", name, "{", labels, "} ", value, "\n");
  return text;
}

}  // namespace seqlab::serve
