// Which texts a bundle is proven on, and in which calls it reads them: seqlab_export.runner.cases, case for case.
//
// R rows, T positions.
#ifndef SEQLAB_CASES_H_
#define SEQLAB_CASES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "manifest.h"
#include "seqlab/runtime.h"

namespace seqlab {

// Rows of each case of a decoder, and at least so many of an encoder, read in batches of every size.
inline constexpr int64_t kCaseRows = 10;
// Batches in which every case is read.
inline constexpr int64_t kBatchSizes[] = {1, 2, 9};
// Batches in which `CaseOfMoreBatches` is read; where one has more rows than the case, its rows come again.
inline constexpr int64_t kMoreBatchSizes[] = {3, 4, 5, 8, 10, 16, 33};

// Rows or positions that follow each other: from `first`, before `end`.
struct Span {
  int64_t first = 0, end = 0;

  int64_t size() const { return end - first; }
};

// A length and which of it is real, (R, T).
struct Case {
  std::string name;
  int64_t length = 0;
  std::vector<uint8_t> mask;

  int64_t rows() const { return static_cast<int64_t>(mask.size()) / length; }
  // The mask of some rows and positions.
  std::vector<uint8_t> Mask(const Ids& from_rows, Span positions) const;
};

// Lengths 1, 2, as traced, one more and four times it, as far as the model reads; each unpadded and padded: left, right,
// all but `least` tokens, all but the last one, and not at all, in turns.
std::vector<Case> Cases(std::optional<int64_t> longest, int64_t rows = kCaseRows, int64_t least = 0);

// A text of up to 1,024 positions, where that is longer than `Cases`: a row without pads, one with a third on its left.
std::vector<Case> LongCases(std::optional<int64_t> longest);

// Lengths of texts that are read in one call: around every power of two from 16 on, the longest, and one below it. Each
// holds the first call of a prefix-causal model.
std::vector<int64_t> OneCallLengths(std::optional<int64_t> longest, int64_t first_call = 1);

// The last case that is no longer than one position over the length of the capture.
const Case& CaseOfMoreBatches(const std::vector<Case>& cases, std::optional<int64_t> longest);

// The rows of each batch of this size; in one of more than there are, they come again.
std::vector<Ids> Batches(int64_t rows, int64_t size);

// Where each row stands in `Batches` end to end: once, or more often, so that every place is looked at.
std::vector<Ids> Passes(int64_t rows, int64_t size);

// All of so many rows.
Ids AllRows(int64_t rows);

// Those of an encoder. A source has a token at least. There are rows for 400 numbers of a position.
std::vector<Case> EncoderCases(const GraphInfo& info, std::optional<int64_t> longest);

// The positions of each call: one for all tokens ("prefill"), for each half ("chunks") or for each token ("step"), or for
// each eighth, with one for each of its last two tokens ("long"). The first holds `first_call` real tokens of every row
// that has as many.
std::vector<Span> Calls(const std::string& form, const Case& some, int64_t first_call);

}  // namespace seqlab

#endif  // SEQLAB_CASES_H_
