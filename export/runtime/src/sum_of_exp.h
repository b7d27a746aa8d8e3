// The sum under a softmax.
#ifndef SEQLAB_SUM_OF_EXP_H_
#define SEQLAB_SUM_OF_EXP_H_

#include <cstdint>

namespace seqlab {

// Of exp(logit - largest), in float64, in any order. A beam search spends most of its own time here.
double SumOfExp(const float* logits, int64_t count, double largest);
double SumOfExp(const double* logits, int64_t count, double largest);

}  // namespace seqlab

#endif  // SEQLAB_SUM_OF_EXP_H_
