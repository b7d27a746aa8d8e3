// The inputs of the proof, and the calls in which they are read: the same cases as seqlab_export.runner.cases, which
// explains the constants of the table.
//
// R rows, T positions.
#ifndef SEQLAB_CASES_H_
#define SEQLAB_CASES_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "manifest.h"
#include "proof_constants.h"
#include "seqlab/runtime.h"

namespace seqlab {

// The value of a name in a table that has it.
template <size_t N>
int64_t ValueOf(const std::pair<const char*, int64_t> (&table)[N], const std::string& name) {
  return std::find_if(table, table + N, [&](const auto& named) { return name == named.first; })->second;
}

// The range of rows or positions from `first` up to, not including, `end`.
struct Span {
  int64_t first = 0, end = 0;

  int64_t size() const { return end - first; }
};

// A length, and the mask of real positions, (R, T).
struct Case {
  std::string name;
  int64_t length = 0;
  std::vector<uint8_t> mask;

  int64_t rows() const { return static_cast<int64_t>(mask.size()) / length; }
  // The mask at some rows and positions.
  std::vector<uint8_t> Mask(const Ids& from_rows, Span positions) const;
};

// A batch size, and a case that is read in it.
using Cell = std::pair<int64_t, std::reference_wrapper<const Case>>;

// Cases of each length, up to the maximum of the model, unpadded and padded; in a reduced proof, only padded. Padded
// rows alternate between padding on the left, on the right, all tokens, all but the last token, and no padding.
std::vector<Case> Cases(std::optional<int64_t> longest, bool reduced);

// Two texts of the maximum length, if that is longer than `Cases`; one has pads on its left, and is the only one of a
// reduced proof.
std::vector<Case> LongCases(std::optional<int64_t> longest, bool reduced);

// Lengths of texts that are read in one call: around powers of two, in a reduced proof only above them, and around the
// maximum. Each is at least the first call of a prefix-causal model.
std::vector<int64_t> OneCallLengths(std::optional<int64_t> longest, int64_t first_call, bool reduced);

// Each case in the batch sizes of all, and the last case whose length is at most the traced length plus one in more. A
// reduced proof reads each case in one batch, and the last case of at most two tokens in all of these sizes.
std::vector<Cell> Cells(const std::vector<Case>& cases, std::optional<int64_t> longest, bool reduced);

// The rows of each batch of this size; rows repeat if the batch is larger than their number.
std::vector<Ids> Batches(int64_t rows, int64_t size);

// Positions of the rows in the concatenated `Batches`, a list per pass: a repeated row has several positions.
std::vector<Ids> Passes(int64_t rows, int64_t size);

// The indices of a number of rows.
Ids AllRows(int64_t rows);

// `Cases` of an encoder, with enough rows for `kEncoderNumbers` values at each position. A source has at least one
// token.
std::vector<Case> EncoderCases(const GraphInfo& info, std::optional<int64_t> longest, bool reduced);

// The positions of each call in which a form reads a case; "long" ends each call but the first with single tokens. The
// first call holds at least `first_call` real tokens of every row that has as many.
std::vector<Span> Calls(const std::string& form, const Case& some, int64_t first_call);

}  // namespace seqlab

#endif  // SEQLAB_CASES_H_
