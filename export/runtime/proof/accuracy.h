// Errors of a bundle's outputs against the float64 reference: seqlab_export.runner.cases, number for number.
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

// Numbers in row-major order. A float holds integers up to 2^24 exactly, far more than the positions that a proof
// reads.
struct Numbers {
  std::vector<int64_t> dims;
  std::vector<float> values;
};

// Concatenates parts along an axis.
Numbers Concatenated(std::vector<Numbers> parts, size_t axis);

// Returns true if an output is judged, as all are but those that begin empty.
bool IsJudged(const TensorInfo& output);

// Outputs whose errors are judged together: "logits", "state" (floating-point entries) or "counters".
struct Group {
  std::string name;
  std::vector<size_t> outputs;
};

// Groups the outputs of a graph that are judged.
std::vector<Group> Groups(const GraphInfo& info);

// Returns how many numbers of an output are compared at most.
size_t MostNumbers(const GraphInfo& info, size_t output);

// Returns how many numbers of each part of an output are compared at most, for texts of `num_lengths` lengths.
size_t NumbersOfCall(size_t num_lengths, size_t num_outputs = 1);

// Returns `most` spread-out numbers of a range in a tensor on the host, or all if it has fewer.
std::vector<double> Spread(const Value& tensor, Span places, size_t most);

// Returns the places of the numbers that are compared, of `size`: all of them, or `most`, spread evenly.
std::vector<size_t> SpreadPlaces(size_t size, size_t most);

// Selects the numbers of an output that are compared: `most` spread-out numbers of the real positions if it is floating
// point, all otherwise. Throws Refusal if its positions are not those of the case.
std::vector<double> Selected(const Numbers& numbers, const TensorInfo& info, const Case& some, size_t most);

// Appends to `errors` the differences from the reference in units of its RMS, from the whole reference or from the part
// that starts at `begin`.
void AddErrors(const std::vector<double>& actual, const std::vector<double>& expected, std::vector<double>& errors);
void AddErrors(const std::vector<double>& actual, const std::vector<double>& expected, size_t begin,
               std::vector<double>& errors);

// Returns the numbers of these rows, (R, ...).
Numbers TakenRows(const Numbers& numbers, const Ids& rows);

// Returns the limit of the RMS error, relative to the reference: twice PyTorch's own error, and at least 4 eps.
double Limit(double torch_error, const std::string& precision);

// Judges a subject by the RMS of its errors, which may be at most `limit`; PyTorch's is `torch_error`.
Check Judged(const std::string& kind, const std::string& subject, const std::vector<double>& errors, double torch_error,
             double limit);

// Returns the divergence of logits from the reference's, in rows of `size`. Throws Refusal if there is no row.
Divergence DivergenceFrom(const std::vector<double>& reference, const std::vector<double>& logits, int64_t size);

}  // namespace seqlab

#endif  // SEQLAB_ACCURACY_H_
