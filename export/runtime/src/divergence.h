// The Kullback-Leibler divergence of one set of logits from another.
#ifndef SEQLAB_DIVERGENCE_H_
#define SEQLAB_DIVERGENCE_H_

#include <cstdint>
#include <vector>

#include "seqlab/runtime.h"

namespace seqlab {

// Of rows of `size` logits each; there is one at least.
Divergence DivergenceFrom(const std::vector<double>& reference, const std::vector<double>& logits, int64_t size);

}  // namespace seqlab

#endif  // SEQLAB_DIVERGENCE_H_
