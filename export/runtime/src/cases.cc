#include "cases.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>

#include "error.h"

namespace seqlab {
namespace {

// Of each output at least so many numbers are compared, where it has them.
constexpr size_t kLeastNumbers = 256;
// Positions that are read, where the model reads as many.
constexpr int64_t kLongest = 1024;
// Of each position of an encoder's outputs so many are compared at least.
constexpr int64_t kEncoderNumbers = 400;
constexpr double kGoldenRatio = 0.6180339887498949;

int64_t TracedLength(std::optional<int64_t> longest) {
  return longest ? std::min<int64_t>(std::max<int64_t>(*longest / 4, 2), 16) : 16;
}

int64_t Product(const std::vector<int64_t>& dims, size_t first, size_t last) {
  return std::accumulate(dims.begin() + static_cast<int64_t>(first), dims.begin() + static_cast<int64_t>(last),
                         int64_t{1}, std::multiplies<>());
}

// What is empty at the start is not judged.
bool IsJudged(const TensorInfo& output) {
  return std::count(output.dims.begin(), output.dims.end(), Dim(int64_t{0})) == 0;
}

// The numbers of a position, or so many as are enough.
int64_t FixedSize(const TensorInfo& info) {
  int64_t size = 1;
  for (const Dim& dim : info.dims) {
    const auto* fixed = std::get_if<int64_t>(&dim);
    if (fixed != nullptr) size = std::min(size * std::min(*fixed, kEncoderNumbers), kEncoderNumbers);
  }
  return size;
}

// Of a cache with room for so many keys, in which real tokens stand first, without gaps.
std::vector<uint8_t> FilledPlaces(const Case& some, int64_t capacity) {
  std::vector<uint8_t> filled;
  for (int64_t row = 0; row < some.rows(); ++row) {
    const auto begin = some.mask.begin() + row * some.length;
    const int64_t real = std::accumulate(begin, begin + some.length, int64_t{0});
    for (int64_t place = 0; place < capacity; ++place) filled.push_back(place < real);
  }
  return filled;
}

}  // namespace

std::vector<Case> Cases(std::optional<int64_t> longest, int64_t rows, int64_t least) {
  const int64_t traced = TracedLength(longest);
  std::vector<Case> cases;
  for (const int64_t length : std::set<int64_t>{1, 2, traced, traced + 1, 4 * traced}) {
    if (longest && length > *longest) continue;
    const std::string name = Join("length ", length);
    cases.push_back({name, length, std::vector<uint8_t>(static_cast<size_t>(rows * length), 1)});
    if (length == 1) continue;
    const int64_t half = length / 2;
    const std::pair<int64_t, int64_t> spans[] = {{half, length}, {0, half}, {0, least}, {length - 1, length}, {0, length}};
    Case padded{name + ", padded", length, {}};
    for (int64_t row = 0; row < rows; ++row) {
      const auto [first, end] = spans[row % 5];
      for (int64_t place = 0; place < length; ++place) padded.mask.push_back(first <= place && place < end);
    }
    cases.push_back(std::move(padded));
  }
  return cases;
}

std::vector<Case> LongCases(std::optional<int64_t> longest) {
  const int64_t length = std::min(longest.value_or(kLongest), kLongest);
  if (length <= 4 * TracedLength(longest)) return {};
  Case some{Join("length ", length), length, std::vector<uint8_t>(static_cast<size_t>(2 * length), 1)};
  std::fill_n(some.mask.begin() + length, length / 3, uint8_t{0});
  return {some};
}

std::vector<Case> EncoderCases(const GraphInfo& info, std::optional<int64_t> longest) {
  int64_t numbers = kEncoderNumbers;
  for (const TensorInfo& output : info.outputs) {
    if (IsJudged(output) && output.IsFloat()) numbers = std::min(numbers, FixedSize(output));
  }
  const int64_t rows = kCaseRows * ((kEncoderNumbers + kCaseRows * numbers - 1) / (kCaseRows * numbers));
  std::vector<Case> cases = Cases(longest, rows, info.inputs[0].name == "source" ? 1 : 0);
  for (Case& some : cases) some.name = "encoder/" + some.name;
  return cases;
}

std::vector<std::pair<int64_t, int64_t>> Calls(const std::string& form, const Case& some, int64_t first_call) {
  const int64_t length = some.length;
  const int64_t width = form == "prefill"  ? length
                        : form == "chunks" ? std::max<int64_t>(length / 2, 1)
                        : form == "long"   ? std::max<int64_t>(length / 8, 4)
                                           : 1;
  int64_t first = width;
  for (int64_t row = 0; first_call > 1 && row < some.rows(); ++row) {
    const auto begin = some.mask.begin() + row * length;
    const int64_t wanted = std::min(first_call, std::accumulate(begin, begin + length, int64_t{0}));
    int64_t real = 0, needed = 0;
    while (needed < length && real < wanted) real += begin[needed++];
    first = std::max({first, needed, int64_t{1}});
  }
  std::set<int64_t> bounds = {0, length};
  for (int64_t end = first; end < length; end += width) bounds.insert(end);
  if (form == "long") {
    for (const int64_t end : std::set<int64_t>(std::next(bounds.begin(), 2), bounds.end())) {
      for (const int64_t place : {end - 1, end - 2}) {
        if (place > first) bounds.insert(place);
      }
    }
  }
  std::vector<std::pair<int64_t, int64_t>> calls;
  for (auto end = std::next(bounds.begin()); end != bounds.end(); ++end) calls.emplace_back(*std::prev(end), *end);
  return calls;
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

Numbers Concatenated(const std::vector<Numbers>& parts, size_t axis) {
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
  return std::max(kMostNumbers / together, kLeastNumbers);
}

std::vector<double> Selected(const Numbers& numbers, const TensorInfo& info, const Case& some, size_t most) {
  if (!info.IsFloat()) return numbers.values;
  int64_t axis = -1;
  for (const char* time : {"T", "S+T", "M", "C"}) axis = std::max(axis, info.Axis(time));
  std::vector<double> row;
  if (axis < 0) {
    row = numbers.values;
  } else {
    // (B, outer, T, inner), of which the real positions come as (B x T, outer, inner).
    const std::vector<int64_t>& dims = numbers.dims;
    const auto place = static_cast<size_t>(axis);
    const int64_t outer = Product(dims, 1, place), inner = Product(dims, place + 1, dims.size()), length = dims[place];
    const std::vector<uint8_t> mask = info.Axis("C") < 0 ? some.mask : FilledPlaces(some, length);
    for (int64_t position = 0; position < dims[0] * length; ++position) {
      if (mask[static_cast<size_t>(position)] == 0) continue;
      for (int64_t part = 0; part < outer; ++part) {
        const int64_t first = ((position / length * outer + part) * length + position % length) * inner;
        row.insert(row.end(), numbers.values.begin() + first, numbers.values.begin() + first + inner);
      }
    }
  }
  if (row.size() <= most) return row;
  // Multiples of the golden ratio modulo 1 leave no gap and, unlike equal steps, favour no column.
  std::vector<double> spread;
  for (size_t place = 0; place < most; ++place) {
    const double share = std::fmod(static_cast<double>(place) * kGoldenRatio, 1.0);
    spread.push_back(row[static_cast<size_t>(share * static_cast<double>(row.size()))]);
  }
  return spread;
}

void AddErrors(const std::vector<double>& actual, const std::vector<double>& expected, std::vector<double>& errors) {
  if (actual.size() != expected.size()) Refuse("there are ", actual.size(), " numbers, and should be ", expected.size());
  const double rms = Rms(expected), unit = rms == 0 ? 1.0 : rms;
  for (size_t place = 0; place < actual.size(); ++place) errors.push_back((actual[place] - expected[place]) / unit);
}

double Rms(const std::vector<double>& values) {
  const double sum = std::inner_product(values.begin(), values.end(), values.begin(), 0.0);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

double Limit(double torch_error, const std::string& precision) {
  const double eps = precision == "fp16" ? std::ldexp(1.0, -10) : std::numeric_limits<float>::epsilon();
  return std::max(2 * torch_error, 4 * eps);
}

}  // namespace seqlab
