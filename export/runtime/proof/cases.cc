#include "cases.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "accuracy.h"
#include "error.h"

namespace seqlab {
namespace {

using namespace proof;

int64_t TracedLength(std::optional<int64_t> longest) {
  return longest ? std::min(std::max(*longest / kTracedParts, kTracedLeast), kTracedMost) : kTracedMost;
}

// The lengths of `Cases` for a model that reads any length.
std::set<int64_t> CaseLengths(std::optional<int64_t> longest) {
  std::set<int64_t> lengths;
  for (const auto& [factor, more] : kCaseLengths) lengths.insert(factor * TracedLength(longest) + more);
  return lengths;
}

// The number of values of a position, at most `kEncoderNumbers`.
int64_t FixedSize(const TensorInfo& info) {
  int64_t size = 1;
  for (const Dim& dim : info.dims) {
    const auto* fixed = std::get_if<int64_t>(&dim);
    if (fixed != nullptr) size = std::min(size * std::min(*fixed, kEncoderNumbers), kEncoderNumbers);
  }
  return size;
}

int64_t NumRows(bool reduced) { return reduced ? kReducedRows : kRows; }

// The cases of each length, of this number of rows.
std::vector<Case> CasesOf(std::optional<int64_t> longest, bool reduced, int64_t rows, int64_t least) {
  std::vector<Case> cases;
  for (const int64_t length : CaseLengths(longest)) {
    if (longest && length > *longest) continue;
    const std::string name = Join("length ", length);
    if (length == 1 || !reduced) {
      cases.push_back({name, length, std::vector<uint8_t>(static_cast<size_t>(rows * length), 1)});
    }
    if (length == 1) continue;
    const std::map<std::string, int64_t> bounds = {
        {"begin", 0}, {"half", length / 2}, {"least", least}, {"last", length - 1}, {"end", length}};
    Case padded{name + ", padded", length, {}};
    for (int64_t row = 0; row < rows; ++row) {
      const auto& [from, to] = kSpans[static_cast<size_t>(row) % std::size(kSpans)];
      const int64_t first = bounds.at(from), end = bounds.at(to);
      for (int64_t place = 0; place < length; ++place) padded.mask.push_back(first <= place && place < end);
    }
    cases.push_back(std::move(padded));
  }
  return cases;
}

}  // namespace

std::vector<uint8_t> Case::Mask(const Ids& from_rows, Span positions) const {
  std::vector<uint8_t> part;
  for (const int64_t row : from_rows) {
    const auto begin = mask.begin() + row * length;
    part.insert(part.end(), begin + positions.first, begin + positions.end);
  }
  return part;
}

std::vector<Case> Cases(std::optional<int64_t> longest, bool reduced) {
  return CasesOf(longest, reduced, NumRows(reduced), 0);
}

std::vector<Case> LongCases(std::optional<int64_t> longest, bool reduced) {
  const int64_t length = std::min(longest.value_or(kLongest), kLongest);
  if (length <= *CaseLengths(longest).rbegin()) return {};
  Case some{Join("length ", length), length, std::vector<uint8_t>(static_cast<size_t>(2 * length), 1)};
  std::fill_n(some.mask.begin() + length, length / kLongPads, uint8_t{0});
  if (reduced) some.mask.erase(some.mask.begin(), some.mask.begin() + length);
  return {some};
}

std::vector<int64_t> OneCallLengths(std::optional<int64_t> longest, int64_t first_call, bool reduced) {
  const int64_t end = std::min(longest.value_or(kLongest), kLongest);
  std::set<int64_t> around;
  for (const int64_t offset : kAroundLongest) around.insert(end + offset);
  for (int64_t power = kFirstPower; power <= 2 * end; power *= 2) {
    for (const int64_t offset : kAroundPowers) {
      if (!reduced || offset == *std::rbegin(kAroundPowers)) around.insert(power + offset);
    }
  }
  std::vector<int64_t> lengths;
  for (const int64_t length : around) {
    if (std::max<int64_t>(first_call, 1) <= length && length <= end) lengths.push_back(length);
  }
  return lengths;
}

std::vector<Cell> Cells(const std::vector<Case>& cases, std::optional<int64_t> longest, bool reduced) {
  const int64_t most = reduced ? kReducedBatchesMost : TracedLength(longest) + 1;
  const auto of_all_sizes =
      std::find_if(cases.rbegin(), cases.rend(), [&](const Case& some) { return some.length <= most; });
  std::vector<Cell> cells;
  if (reduced) {
    for (const Case& some : cases) cells.emplace_back(some.rows(), some);
  }
  for (const int64_t batch : kBatchSizes) {
    if (reduced) {
      cells.emplace_back(batch, *of_all_sizes);
    } else {
      for (const Case& some : cases) cells.emplace_back(batch, some);
    }
  }
  for (const int64_t batch : kMoreBatchSizes) cells.emplace_back(batch, *of_all_sizes);
  return cells;
}

std::vector<Ids> Batches(int64_t rows, int64_t size) {
  std::vector<Ids> batches;
  for (int64_t first = 0; first < rows; first += size) {
    batches.emplace_back();
    const int64_t end = size > rows ? size : std::min(first + size, rows);
    for (int64_t place = first; place < end; ++place) batches.back().push_back(place % rows);
  }
  return batches;
}

std::vector<Ids> Passes(int64_t rows, int64_t size) {
  const int64_t places = std::max(size, rows);
  std::vector<Ids> passes;
  for (int64_t again = 0; again <= (places - 1) / rows; ++again) {
    passes.emplace_back();
    for (int64_t row = 0; row < rows; ++row)
      passes.back().push_back(row + rows * std::min((places - 1 - row) / rows, again));
  }
  return passes;
}

Ids AllRows(int64_t rows) {
  Ids all(static_cast<size_t>(rows));
  std::iota(all.begin(), all.end(), int64_t{0});
  return all;
}

std::vector<Case> EncoderCases(const GraphInfo& info, std::optional<int64_t> longest, bool reduced) {
  int64_t numbers = kEncoderNumbers;
  for (const TensorInfo& output : info.outputs) {
    if (IsJudged(output) && output.IsFloat()) numbers = std::min(numbers, FixedSize(output));
  }
  const int64_t least_rows = NumRows(reduced);
  const int64_t rows = least_rows * ((kEncoderNumbers + least_rows * numbers - 1) / (least_rows * numbers));
  std::vector<Case> cases = CasesOf(longest, reduced, rows, info.inputs[0].name == "source" ? 1 : 0);
  for (Case& some : cases) some.name = "encoder/" + some.name;
  return cases;
}

std::vector<Span> Calls(const std::string& form, const Case& some, int64_t first_call) {
  const int64_t length = some.length;
  const int64_t width = std::max(length / ValueOf(kFormParts, form), ValueOf(kFormLeast, form));
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
      for (const int64_t back : kStepsInLong) {
        if (end - back > first) bounds.insert(end - back);
      }
    }
  }
  std::vector<Span> calls;
  for (auto end = std::next(bounds.begin()); end != bounds.end(); ++end) calls.push_back({*std::prev(end), *end});
  return calls;
}

}  // namespace seqlab
