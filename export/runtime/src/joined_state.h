// States of single texts and of batches, joined to the state of another batch.
#ifndef SEQLAB_JOINED_STATE_H_
#define SEQLAB_JOINED_STATE_H_

#include <cstdint>
#include <vector>

#include "manifest.h"
#include "tensors.h"

namespace seqlab {

// A text's row in the state of a batch, by entry of the manifest.
struct StateRow {
  const std::vector<Value>* state = nullptr;
  int64_t row = 0;
  int64_t read = 0;    // number of tokens that the text has read
  int64_t source = 0;  // length of its source, 0 without one
};

// Sizes of an entry's axes in a batch. Throws Refusal if it has a dimension that no state has.
std::vector<int64_t> SizesOf(const Manifest& manifest, const StateInfo& entry, int64_t rows, int64_t read,
                             int64_t source);

// Copies rows into the state of a new batch. Caches that grow are aligned at their ends and filled with zeros before
// them, sources at their starts: the zeros are pads in their masks. Throws Refusal if a value is not what the manifest
// says.
std::vector<Value> Joined(const Manifest& manifest, const std::vector<StateRow>& rows);

// Size in bytes of the state of `rows` texts that have read `read` tokens, and sources of `source` tokens.
int64_t BytesOf(const Manifest& manifest, int64_t rows, int64_t read, int64_t source);

// Throws Refusal if an entry of the state does not have one row for each text, or has a size that is not known.
void CheckHasRows(const Manifest& manifest);

}  // namespace seqlab

#endif  // SEQLAB_JOINED_STATE_H_
