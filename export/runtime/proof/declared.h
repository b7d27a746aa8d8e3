// What a bundle says of itself, proven without running its model: check for check as seqlab_export.runner.verify.
#ifndef SEQLAB_DECLARED_H_
#define SEQLAB_DECLARED_H_

#include "bundle.h"
#include "golden.h"
#include "seqlab/proof.h"

namespace seqlab {

// Adds to the report whether the manifest says what the model states, the tokenizers make of strings what they made,
// and the weights are those that were written; where all is so, whether each graph has the manifest's inputs and
// outputs.
void CheckDeclared(const Bundle& bundle, const GoldenFile& golden, Report& report);

}  // namespace seqlab

#endif  // SEQLAB_DECLARED_H_
