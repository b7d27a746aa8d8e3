// Errors of a bundle's outputs relative to the float64 reference: the same values as in seqlab_export.runner.cases.
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

// Concatenation along an axis.
Numbers Concatenated(const std::vector<Numbers>& parts, size_t axis);

// True unless the output is empty at the start.
bool IsJudged(const TensorInfo& output);

// Outputs whose errors are judged together: "logits", "state" (floating-point entries) or "counters".
struct Group {
  std::string name;
  std::vector<size_t> outputs;
};

std::vector<Group> Groups(const GraphInfo& info);

// Maximum number of values compared for an output.
size_t MostNumbers(const GraphInfo& info, size_t output);

// Maximum number of values compared in each part of an output, for texts of `num_lengths` lengths.
size_t NumbersOfCall(size_t num_lengths, size_t num_outputs = 1);

// A sample of `most` values, or all, at `places` of a tensor on the host.
std::vector<double> Spread(const Value& tensor, Span places, size_t most);

// Sample of at most `most` values of an output at real positions; integers and booleans are returned whole. Throws Refusal
// if its positions are not those of the case.
std::vector<double> Selected(const Numbers& numbers, const TensorInfo& info, const Case& some, size_t most);

// Appends to `errors` the differences in units of the reference's RMS, from the whole reference, or from its values that
// start at `begin`.
void AddErrors(const std::vector<double>& actual, const std::vector<double>& expected, std::vector<double>& errors);
void AddErrors(const std::vector<double>& actual, const std::vector<double>& expected, size_t begin,
               std::vector<double>& errors);

// The values of these rows, (R, ...).
Numbers TakenRows(const Numbers& numbers, const Ids& rows);

// Maximum relative RMS error, given PyTorch's error in this precision.
double Limit(double torch_error, const std::string& precision);

// Check that the RMS of errors is at most `limit`; `torch_error` is PyTorch's own error, for the report.
Check Judged(const std::string& kind, const std::string& subject, const std::vector<double>& errors, double torch_error,
             double limit);

// Divergence of logits from the reference's, in rows of `size` each; there is at least one row.
Divergence DivergenceFrom(const std::vector<double>& reference, const std::vector<double>& logits, int64_t size);

}  // namespace seqlab

#endif  // SEQLAB_ACCURACY_H_
