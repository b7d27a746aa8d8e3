#include "sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "error.h"

namespace seqlab {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Returns the index of the largest value, the first of equal ones. As in NumPy, NaN is larger than all numbers.
template <typename Number>
size_t Largest(const Number* values, size_t count) {
  size_t best = 0;
  for (size_t place = 0; place < count; ++place) {
    if (values[place] <= values[best]) continue;
    best = place;
    if (std::isnan(values[place])) break;
  }
  return best;
}

void CheckLargest(double logit) {
  if (!std::isfinite(logit))
    Refuse(StatusCode::kInternal, "cannot choose a token: the model's largest logit is ", logit);
}

// Returns the tokens that followed earlier occurrences of the last n - 1 tokens.
Ids WouldRepeat(const Ids& text, int64_t ngram) {
  Ids found;
  const auto length = static_cast<int64_t>(text.size());
  const int64_t before = ngram - 1;
  for (int64_t end = before; end < length; ++end) {
    if (std::equal(text.end() - before, text.end(), text.begin() + (end - before))) found.push_back(text[end]);
  }
  return found;
}

Ids Distinct(Ids ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace

void CheckOptions(const Sampling& sampling) {
  if (!std::isfinite(sampling.temperature) || sampling.temperature < 0) {
    Refuse("temperature must be at least 0 and finite, got ", sampling.temperature);
  }
  if (sampling.top_k && *sampling.top_k < 1) Refuse("top_k must be at least 1, got ", *sampling.top_k);
  if (!(0 < sampling.top_p && sampling.top_p <= 1)) {
    Refuse("top_p must be above 0 and at most 1, got ", sampling.top_p);
  }
  if (!(0 <= sampling.min_p && sampling.min_p <= 1)) Refuse("min_p must be from 0 to 1, got ", sampling.min_p);
}

void CheckOptions(const Repetition& repetition) {
  if (!(0 < repetition.penalty && repetition.penalty < kInfinity)) {
    Refuse("the repetition penalty must be above 0 and finite, got ", repetition.penalty);
  }
  if (repetition.ngram && *repetition.ngram < 1) {
    Refuse("the n of blocked n-grams must be at least 1, got ", *repetition.ngram);
  }
}

int64_t Choose(const std::vector<double>& logits, const Sampling& sampling, int64_t step, int64_t row) {
  const size_t best = Largest(logits.data(), logits.size());
  CheckLargest(logits[best]);
  if (sampling.temperature == 0) return static_cast<int64_t>(best);
  const auto better = [&](size_t a, size_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; };
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const size_t kept = std::min<uint64_t>(order.size(), sampling.top_k.value_or(std::numeric_limits<int64_t>::max()));
  std::partial_sort(order.begin(), order.begin() + kept, order.end(), better);
  std::vector<double> cumulative;
  double sum = 0.0;
  for (size_t place = 0; place < kept; ++place) {
    const double weight = std::exp((logits[order[place]] - logits[order[0]]) / sampling.temperature);
    if (weight < sampling.min_p) break;
    sum += weight;
    cumulative.push_back(sum);
  }
  const auto last = std::lower_bound(cumulative.begin(), cumulative.end(), sampling.top_p * sum);
  const double point = Uniform(sampling.seed, static_cast<uint32_t>(step), static_cast<uint32_t>(row)) * *last;
  return static_cast<int64_t>(order[std::upper_bound(cumulative.begin(), last + 1, point) - cumulative.begin()]);
}

int64_t ChooseLargest(const float* logits, int64_t vocab_size) {
  const size_t best = Largest(logits, static_cast<size_t>(vocab_size));
  CheckLargest(logits[best]);
  return static_cast<int64_t>(best);
}

void Apply(const Repetition& repetition, const Ids& text, std::vector<double>& logits) {
  if (repetition.penalty != 1) {
    for (const int64_t token : Distinct(text)) {
      double& logit = logits[token];
      logit = logit > 0 ? logit / repetition.penalty : logit * repetition.penalty;
    }
  }
  if (!repetition.ngram) return;
  const Ids blocked = Distinct(WouldRepeat(text, *repetition.ngram));
  if (blocked.size() == logits.size()) return;
  for (const int64_t token : blocked) logits[token] = -kInfinity;
}

template <typename Number>
Normaliser::Normaliser(const Number* logits, int64_t vocab_size)
    : largest(logits[Largest(logits, static_cast<size_t>(vocab_size))]),
      whole(std::log(SumOfExp(logits, vocab_size, largest))) {}

template Normaliser::Normaliser(const float*, int64_t);
template Normaliser::Normaliser(const double*, int64_t);

void LogSoftmax(std::vector<double>& logits) {
  const Normaliser of(logits.data(), static_cast<int64_t>(logits.size()));
  for (double& logit : logits) logit = logit - of.largest - of.whole;
}

}  // namespace seqlab
