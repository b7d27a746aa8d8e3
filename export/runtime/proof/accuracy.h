// How far the outputs of a bundle are from the float64 reference: seqlab_export.runner.cases, number for number.
#ifndef SEQLAB_ACCURACY_H_
#define SEQLAB_ACCURACY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cases.h"
#include "manifest.h"
#include "seqlab/proof.h"
#include "tensors.h"

namespace seqlab {

// Numbers in row-major order.
struct Numbers {
  std::vector<int64_t> dims;
  std::vector<double> values;
};

// One after the other along an axis.
Numbers Concatenated(const std::vector<Numbers>& parts, size_t axis);

// What is empty at the start is not judged.
bool IsJudged(const TensorInfo& output);

// Outputs whose errors are judged together: "logits", "state" (floating-point entries) or "counters".
struct Group {
  std::string name;
  std::vector<size_t> outputs;
};

std::vector<Group> Groups(const GraphInfo& info);

// Of outputs that are judged together so many numbers are compared.
inline constexpr size_t kMostNumbers = 4096;

// How many numbers of an output are compared at most.
size_t MostNumbers(const GraphInfo& info, size_t output);

// How many numbers of each part of an output are compared at most, of texts of so many lengths.
size_t NumbersOfCall(size_t num_lengths, size_t num_outputs = 1);

// Of numbers that follow each other in a tensor on the host `most` that are spread out, or all.
std::vector<double> Spread(const Value& tensor, Span places, size_t most);

// What counts of an output, in one row: real positions, `most` spread-out numbers. What is no float is taken whole. Throws
// Refusal where it has other positions than the case.
std::vector<double> Selected(const Numbers& numbers, const TensorInfo& info, const Case& some, size_t most);

// Adds to `errors` the differences in units of the reference's RMS, of numbers that stand in the reference from `begin` on,
// or are all of it.
void AddErrors(const std::vector<double>& actual, const std::vector<double>& expected, std::vector<double>& errors);
void AddErrors(const std::vector<double>& actual, const std::vector<double>& expected, size_t begin,
               std::vector<double>& errors);

// The numbers of these rows, (R, ...).
Numbers TakenRows(const Numbers& numbers, const Ids& rows);

// What the RMS error may be, relative to the reference, where PyTorch's is `torch_error`: twice that, and at least 4 eps.
double Limit(double torch_error, const std::string& precision);

// The check of a subject by its errors, of which the RMS may be `limit`; PyTorch's is `torch_error`.
Check Judged(const std::string& kind, const std::string& subject, const std::vector<double>& errors, double torch_error,
             double limit);

// Of logits from the reference's, in rows of `size` each; there is one at least.
Divergence DivergenceFrom(const std::vector<double>& reference, const std::vector<double>& logits, int64_t size);

}  // namespace seqlab

#endif  // SEQLAB_ACCURACY_H_
