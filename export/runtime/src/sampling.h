// The choice of a token from logits: the rule of seqlab.decoding, step for step.
#ifndef SEQLAB_SAMPLING_H_
#define SEQLAB_SAMPLING_H_

#include <array>
#include <cstdint>
#include <vector>

#include "seqlab/runtime.h"

namespace seqlab {

// Throws Refusal if an option is out of range.
void CheckOptions(const Sampling& sampling);
void CheckOptions(const Repetition& repetition);

// Chooses the token at generated position `step` of batch row `row` from logits (V,).
//
// Throws Refusal if the largest logit is not finite.
int64_t Choose(const std::vector<double>& logits, const Sampling& sampling, int64_t step, int64_t row);

// Chooses the likeliest token, as `Choose` does at temperature 0.
int64_t ChooseLargest(const float* logits, int64_t vocab_size);

// Returns true if `Apply` changes nothing.
inline bool IsFree(const Repetition& repetition) { return repetition.penalty == 1 && !repetition.ngram; }

// Penalises and blocks tokens in logits (V,) that follow `text`, whose tokens are in 0..V-1.
void Apply(const Repetition& repetition, const Ids& text, std::vector<double>& logits);

// Returns the denominator of a softmax, the sum of exp(logit - largest), in float64 and in any order. Beam search
// spends most of its own time here.
double SumOfExp(const float* logits, int64_t count, double largest);
double SumOfExp(const double* logits, int64_t count, double largest);

// The log-normaliser of logits: the log-probability of a logit x is x - largest - whole.
struct Normaliser {
  template <typename Number>
  Normaliser(const Number* logits, int64_t vocab_size);

  double largest, whole;
};

// Replaces logits (V,) by their log-probabilities.
void LogSoftmax(std::vector<double>& logits);

// Philox4x32-10, the counter-based generator of all sampling (Salmon et al. 2011, "Parallel random numbers: as easy as
// 1, 2, 3").
using PhiloxWords = std::array<uint32_t, 4>;

inline PhiloxWords Philox4x32(PhiloxWords counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t low = uint64_t{0xD2511F53} * counter[0];
    const uint64_t high = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(high >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(high),
               static_cast<uint32_t>(low >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(low)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// Returns a number in [0, 1) with 53 random bits, for the token at `step` of `row`.
inline double Uniform(uint64_t seed, uint32_t step, uint32_t row) {
  const PhiloxWords words =
      Philox4x32({step, row, 0, 0}, {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return (static_cast<double>(words[0] >> 5) * 67108864.0 + static_cast<double>(words[1] >> 6)) / 9007199254740992.0;
}

}  // namespace seqlab

#endif  // SEQLAB_SAMPLING_H_
