// Greedy text and its logits against the golden file: seqlab_export.runner.greedy, check for check.
#ifndef SEQLAB_GREEDY_H_
#define SEQLAB_GREEDY_H_

#include <vector>

#include "bundle.h"
#include "case_runner.h"
#include "golden.h"
#include "seqlab/proof.h"

namespace seqlab {

// Makes one check for each prompt: its logits are the reference's up to the first other token, where the reference's
// two best logits must be closer than twice the largest error of the logits. Throws Refusal if the golden file is
// damaged.
std::vector<Check> CheckGreedy(const Bundle& bundle, const GoldenFile& golden, CaseRunner& runner);

}  // namespace seqlab

#endif  // SEQLAB_GREEDY_H_
