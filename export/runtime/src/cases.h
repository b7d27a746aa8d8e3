// What is compared with the float64 reference, and what an error is: seqlab_export.runner.cases, case for case.
#ifndef SEQLAB_CASES_H_
#define SEQLAB_CASES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "manifest.h"

namespace seqlab {

// Rows of each case of a decoder, and at least so many of an encoder, read in batches of every size.
inline constexpr int64_t kCaseRows = 10;

// A length and which of it is real, (R, T).
struct Case {
  std::string name;
  int64_t length = 0;
  std::vector<uint8_t> mask;

  int64_t rows() const { return static_cast<int64_t>(mask.size()) / length; }
};

// Lengths 1, 2, as traced, one more and four times it, as far as the model reads; each unpadded and padded: left, right,
// all but `least` tokens, all but the last one, and not at all, in turns.
std::vector<Case> Cases(std::optional<int64_t> longest, int64_t rows = kCaseRows, int64_t least = 0);

// A text of up to 1,024 positions, where that is longer than `Cases`: a row without pads, one with a third on its left.
std::vector<Case> LongCases(std::optional<int64_t> longest);

// Those of an encoder. A source has a token at least. There are rows for 400 numbers of a position.
std::vector<Case> EncoderCases(const GraphInfo& info, std::optional<int64_t> longest);

// Where calls begin and end: one for all tokens ("prefill"), for each half ("chunks") or for each token ("step"), or for
// each eighth, with one for each of its last two tokens ("long"). The first holds `first_call` real tokens of every row
// that has as many.
std::vector<std::pair<int64_t, int64_t>> Calls(const std::string& form, const Case& some, int64_t first_call);

// Outputs whose errors are judged together: "logits", "state" (floating-point entries) or "counters".
struct Group {
  std::string name;
  std::vector<size_t> outputs;
};

std::vector<Group> Groups(const GraphInfo& info);

// Numbers in row-major order.
struct Numbers {
  std::vector<int64_t> dims;
  std::vector<double> values;
};

// One after the other along an axis.
Numbers Concatenated(const std::vector<Numbers>& parts, size_t axis);

// Of outputs that are judged together so many numbers are compared.
inline constexpr size_t kMostNumbers = 4096;

// How many numbers of an output are compared at most.
size_t MostNumbers(const GraphInfo& info, size_t output);

// What counts of an output, in one row: real positions, `most` spread-out numbers. What is no float is taken whole.
std::vector<double> Selected(const Numbers& numbers, const TensorInfo& info, const Case& some, size_t most);

// Adds to `errors` the differences in units of the reference's RMS.
void AddErrors(const std::vector<double>& actual, const std::vector<double>& expected, std::vector<double>& errors);

// Root mean square.
double Rms(const std::vector<double>& values);

// What the RMS error may be, relative to the reference, where PyTorch's is `torch_error`: twice that, and at least 4 eps.
double Limit(double torch_error, const std::string& precision);

}  // namespace seqlab

#endif  // SEQLAB_CASES_H_
