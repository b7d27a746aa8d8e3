#include "sampling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "error.h"
#include "philox.h"

namespace seqlab {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The place of the largest, of equal ones the first; as NumPy has it, NaN is larger than all.
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
  if (!std::isfinite(logit)) Refuse("cannot choose a token: the model's largest logit is ", logit);
}

// e^x of x <= 0 but for a few units in the last place; without branches or calls, so that a loop over it becomes vector
// instructions. Cody and Waite 1980: x = n ln 2 + r, of which e^r is Taylor's series, and n is added to the exponent.
inline double Exp(double x) {
  constexpr double kRound = 0x1.8p52;  // leaves n in the last bits
  x = x < -708.0 ? -708.0 : x;
  const double shifted = x * 1.44269504088896338700 + kRound;
  const double n = shifted - kRound;
  const double r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
  double power = 1.0 / 6227020800.0;
  for (const double factorial : {479001600.0, 39916800.0, 3628800.0, 362880.0, 40320.0, 5040.0, 720.0, 120.0, 24.0, 6.0,
                                 2.0, 1.0, 1.0}) {
    power = power * r + 1.0 / factorial;
  }
  uint64_t bits, exponent;
  std::memcpy(&bits, &power, sizeof(bits));
  std::memcpy(&exponent, &shifted, sizeof(exponent));
  bits += exponent << 52;
  std::memcpy(&power, &bits, sizeof(bits));
  return power;
}

// The tokens that have followed the last n - 1 before.
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
    : largest(logits[Largest(logits, static_cast<size_t>(vocab_size))]) {
  constexpr int64_t kLanes = 8;
  std::array<double, kLanes> sums{};
  const int64_t even = vocab_size - vocab_size % kLanes;
  for (int64_t token = 0; token < even; token += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += Exp(logits[token + lane] - largest);
  }
  for (int64_t token = even; token < vocab_size; ++token) sums[0] += Exp(logits[token] - largest);
  whole = std::log(std::accumulate(sums.begin(), sums.end(), 0.0));
}

template Normaliser::Normaliser(const float*, int64_t);
template Normaliser::Normaliser(const double*, int64_t);

void LogSoftmax(std::vector<double>& logits) {
  const Normaliser of(logits.data(), static_cast<int64_t>(logits.size()));
  for (double& logit : logits) logit = logit - of.largest - of.whole;
}

}  // namespace seqlab
