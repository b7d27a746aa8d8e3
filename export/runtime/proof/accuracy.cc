#include "accuracy.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "error.h"
#include "sampling.h"

namespace seqlab {
namespace {

using namespace proof;

int64_t Product(const std::vector<int64_t>& dims, size_t first, size_t last) {
  return std::accumulate(dims.begin() + static_cast<int64_t>(first), dims.begin() + static_cast<int64_t>(last),
                         int64_t{1}, std::multiplies<>());
}

// Returns which places of a cache for `capacity` keys are filled: the real tokens come first, without gaps.
std::vector<uint8_t> FilledPlaces(const Case& some, int64_t capacity) {
  std::vector<uint8_t> filled;
  for (int64_t row = 0; row < some.rows(); ++row) {
    const auto begin = some.mask.begin() + row * some.length;
    const int64_t real = std::accumulate(begin, begin + some.length, int64_t{0});
    for (int64_t place = 0; place < capacity; ++place) filled.push_back(place < real);
  }
  return filled;
}

// Returns the root mean square.
double Rms(const std::vector<double>& values) {
  const double sum = std::inner_product(values.begin(), values.end(), values.begin(), 0.0);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

template <typename Number>
std::vector<double> SpreadOut(const std::vector<Number>& row, size_t most) {
  if (row.size() <= most) return {row.begin(), row.end()};
  std::vector<double> spread;
  for (const size_t place : SpreadPlaces(row.size(), most)) spread.push_back(row[place]);
  return spread;
}

// Returns a quantile as NumPy does, linear between the two nearest values.
double Quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

}  // namespace

bool IsJudged(const TensorInfo& output) {
  return std::count(output.dims.begin(), output.dims.end(), Dim(int64_t{0})) == 0;
}

std::vector<Group> Groups(const GraphInfo& info) {
  std::vector<Group> groups = {{"logits", {}}, {"state", {}}, {"counters", {}}};
  for (size_t place = 0; place < info.outputs.size(); ++place) {
    const TensorInfo& output = info.outputs[place];
    if (!IsJudged(output)) continue;
    groups[output.name == "logits" ? 0 : output.IsFloat() ? 1 : 2].outputs.push_back(place);
  }
  groups.erase(std::remove_if(groups.begin(), groups.end(), [](const Group& group) { return group.outputs.empty(); }),
               groups.end());
  return groups;
}

Numbers Concatenated(std::vector<Numbers> parts, size_t axis) {
  if (parts.size() == 1) return std::move(parts[0]);
  Numbers whole{parts.at(0).dims, {}};
  whole.dims[axis] = 0;
  const int64_t before = Product(whole.dims, 0, axis);
  for (const Numbers& part : parts) whole.dims[axis] += part.dims[axis];
  for (int64_t outer = 0; outer < before; ++outer) {
    for (const Numbers& part : parts) {
      const int64_t size = Product(part.dims, axis, part.dims.size());
      const auto first = part.values.begin() + outer * size;
      whole.values.insert(whole.values.end(), first, first + size);
    }
  }
  return whole;
}

size_t MostNumbers(const GraphInfo& info, size_t output) {
  size_t together = 1;
  for (const Group& group : Groups(info)) {
    if (std::count(group.outputs.begin(), group.outputs.end(), output) > 0) together = group.outputs.size();
  }
  return std::max<size_t>(kMostNumbers / together, kLeastNumbers);
}

size_t NumbersOfCall(size_t num_lengths, size_t num_outputs) {
  return std::max<size_t>(kMostNumbers / (kCallParts * num_lengths * num_outputs), kCallNumbers);
}

std::vector<size_t> SpreadPlaces(size_t size, size_t most) {
  std::vector<size_t> places(std::min(size, most));
  std::iota(places.begin(), places.end(), size_t{0});
  if (size <= most) return places;
  // Multiples of the golden ratio modulo 1 leave no gap and, unlike equal steps, favour no column.
  for (size_t& place : places) {
    const double share = std::fmod(static_cast<double>(place) * kGoldenRatio, 1.0);
    place = static_cast<size_t>(share * static_cast<double>(size));
  }
  return places;
}

std::vector<double> Spread(const Value& tensor, Span places, size_t most) {
  return SpreadOut(Floats(tensor, places.first, places.size()), most);
}

Numbers TakenRows(const Numbers& numbers, const Ids& rows) {
  Numbers taken{numbers.dims, {}};
  taken.dims[0] = static_cast<int64_t>(rows.size());
  const int64_t size = Product(numbers.dims, 1, numbers.dims.size());
  for (const int64_t row : rows) {
    const auto begin = numbers.values.begin() + row * size;
    taken.values.insert(taken.values.end(), begin, begin + size);
  }
  return taken;
}

std::vector<double> Selected(const Numbers& numbers, const TensorInfo& info, const Case& some, size_t most) {
  if (!info.IsFloat()) return {numbers.values.begin(), numbers.values.end()};
  int64_t axis = -1;
  for (const char* time : {"T", "K", "S+T", "M", "C"}) axis = std::max(axis, info.Axis(time));
  if (axis < 0) return SpreadOut(numbers.values, most);
  // (B, outer, T, inner), whose real positions are read as (B x T, outer, inner).
  const std::vector<int64_t>& dims = numbers.dims;
  const auto place = static_cast<size_t>(axis);
  const int64_t outer = Product(dims, 1, place), inner = Product(dims, place + 1, dims.size()), length = dims[place];
  const std::vector<uint8_t> mask = info.Axis("C") < 0 ? some.mask : FilledPlaces(some, length);
  if (static_cast<int64_t>(mask.size()) != dims[0] * length) {
    Refuse(info.name, " has ", dims[0], " rows of ", length, " positions, and should have ", mask.size(), " in all");
  }
  Ids real;
  for (size_t position = 0; position < mask.size(); ++position) {
    if (mask[position] != 0) real.push_back(static_cast<int64_t>(position));
  }
  const int64_t size = outer * inner;
  std::vector<double> selected;
  for (const size_t wanted : SpreadPlaces(real.size() * static_cast<size_t>(size), most)) {
    const int64_t position = real[wanted / static_cast<size_t>(size)];
    const auto within = static_cast<int64_t>(wanted % static_cast<size_t>(size));
    const int64_t part = position / length * outer + within / inner;
    selected.push_back(
        numbers.values[static_cast<size_t>((part * length + position % length) * inner + within % inner)]);
  }
  return selected;
}

void AddErrors(const std::vector<double>& actual, const std::vector<double>& expected, std::vector<double>& errors) {
  if (actual.size() != expected.size())
    Refuse("there are ", actual.size(), " numbers, and should be ", expected.size());
  AddErrors(actual, expected, 0, errors);
}

void AddErrors(const std::vector<double>& actual, const std::vector<double>& expected, size_t begin,
               std::vector<double>& errors) {
  if (begin + actual.size() > expected.size()) Refuse("the golden file ends before these numbers");
  const double rms = Rms(expected), unit = rms == 0 ? 1.0 : rms;
  for (size_t place = 0; place < actual.size(); ++place)
    errors.push_back((actual[place] - expected[begin + place]) / unit);
}

double Limit(double torch_error, const std::string& precision) {
  const int64_t bits = ValueOf(kEpsilonBits, precision == "fp16" ? "fp16" : "fp32");
  const double eps = std::ldexp(1.0, -static_cast<int>(bits));
  return std::isnan(torch_error) ? torch_error : std::max(kTorchErrors * torch_error, kEpsilons * eps);
}

Check Judged(const std::string& kind, const std::string& subject, const std::vector<double>& errors, double torch_error,
             double limit) {
  const double found = Rms(errors);
  double largest = 0.0;
  for (const double error : errors) largest = std::isnan(error) ? error : std::max(largest, std::abs(error));
  const bool ok = std::isfinite(limit) && found <= limit;
  const std::string why = std::isfinite(limit)
                              ? Join("RMS error ", Scientific(found), ", more than ", Scientific(limit))
                              : "PyTorch's own error is not finite";
  return {kind, subject, ok, ok ? "" : why, Errors{found, torch_error, limit, largest}};
}

Divergence DivergenceFrom(const std::vector<double>& reference, const std::vector<double>& logits, int64_t size) {
  if (reference.size() != logits.size() || reference.empty() || size < 1) {
    Refuse("there are ", logits.size(), " logits, and should be ", reference.size());
  }
  std::vector<double> kl;
  double same = 0.0;
  for (auto first = reference.begin(), found = logits.begin(); first != reference.end(); first += size, found += size) {
    std::vector<double> theirs(first, first + size), ours(found, found + size);
    LogSoftmax(theirs);
    LogSoftmax(ours);
    double sum = 0.0;
    for (size_t place = 0; place < theirs.size(); ++place)
      sum += std::exp(theirs[place]) * (theirs[place] - ours[place]);
    kl.push_back(sum);
    const auto best = std::max_element(theirs.begin(), theirs.end()) - theirs.begin();
    same += best == std::max_element(ours.begin(), ours.end()) - ours.begin();
  }
  double mean = 0.0;
  for (const double one : kl) mean += one / static_cast<double>(kl.size());
  return {mean, Quantile(kl, 0.99), same / static_cast<double>(kl.size())};
}

}  // namespace seqlab
