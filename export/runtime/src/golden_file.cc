#include "golden_file.h"

#include <algorithm>

#include "error.h"

namespace seqlab {
namespace {

std::string Shown(const std::vector<int64_t>& dims) {
  std::string text;
  for (const int64_t dim : dims) text += Join(text.empty() ? "" : ", ", dim == kAny ? "any" : std::to_string(dim));
  return "(" + text + ")";
}

bool Fits(int64_t wanted, int64_t dim) { return wanted == kAny ? dim > 0 : dim == wanted; }

}  // namespace

const NpyArray& GoldenFile::At(const std::string& name, const std::vector<int64_t>& dims) const {
  const auto found = arrays_.find(name);
  if (found == arrays_.end()) Refuse("the golden file does not have ", name);
  const std::vector<int64_t>& actual = found->second.dims;
  if (actual.size() < dims.size() || !std::equal(dims.begin(), dims.end(), actual.begin(), Fits)) {
    Refuse(name, " of the golden file has shape ", Shown(actual), ", which should begin with ", Shown(dims));
  }
  return found->second;
}

}  // namespace seqlab
