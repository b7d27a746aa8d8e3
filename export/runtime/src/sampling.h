// How a token is chosen from logits: seqlab.decoding's rule, step for step.
#ifndef SEQLAB_SAMPLING_H_
#define SEQLAB_SAMPLING_H_

#include <cstdint>
#include <vector>

#include "seqlab/runtime.h"

namespace seqlab {

// Throws Refusal where an option is outside its range.
void CheckOptions(const Sampling& sampling);
void CheckOptions(const Repetition& repetition);

// The token that logits (V,) give at generated position `step` of batch row `row`.
//
// Throws Refusal where the largest logit is not finite.
int64_t Choose(const std::vector<double>& logits, const Sampling& sampling, int64_t step, int64_t row);

// The same at temperature 0, of logits as they are.
int64_t ChooseLargest(const float* logits, int64_t vocab_size);

// Whether `Apply` changes nothing.
inline bool IsFree(const Repetition& repetition) { return repetition.penalty == 1 && !repetition.ngram; }

// Changes logits (V,) after the tokens of `text`, each of 0..V-1.
void Apply(const Repetition& repetition, const Ids& text, std::vector<double>& logits);

// The log-probability of a logit x of these is x - largest - whole.
struct Normaliser {
  template <typename Number>
  Normaliser(const Number* logits, int64_t vocab_size);

  double largest, whole;
};

// The log-probabilities of logits (V,), in place.
void LogSoftmax(std::vector<double>& logits);

}  // namespace seqlab

#endif  // SEQLAB_SAMPLING_H_
