#include "joined_state.h"

#include <algorithm>
#include <cstring>

#include "error.h"

namespace seqlab {
namespace {

bool Is(const Dim& dim, const char* name) { return dim == Dim(std::string(name)); }

int64_t BytesOf(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return 1;
    case DType::kFloat16:
      return 2;
    case DType::kFloat32:
      return 4;
    case DType::kInt64:
      return 8;
  }
  return 8;
}

// Dims of an entry in a batch.
std::vector<int64_t> DimsOf(const Manifest& manifest, const StateInfo& entry, int64_t rows, int64_t read,
                            int64_t source) {
  std::vector<int64_t> dims;
  for (const Dim& dim : entry.dims) {
    const auto* number = std::get_if<int64_t>(&dim);
    dims.push_back(number != nullptr              ? *number
                   : Is(dim, "B") || Is(dim, "N") ? rows
                   : Is(dim, "S")                 ? read
                   : Is(dim, "M")                 ? source
                                                  : *manifest.max_seq_len);
  }
  return dims;
}

int64_t Product(std::vector<int64_t>::const_iterator first, std::vector<int64_t>::const_iterator last) {
  int64_t product = 1;
  for (; first != last; ++first) product *= *first;
  return product;
}

}  // namespace

std::vector<Value> Joined(const Manifest& manifest, const std::vector<StateRow>& rows) {
  int64_t read = 0, source = 0;
  for (const StateRow& row : rows) {
    read = std::max(read, row.read);
    source = std::max(source, row.source);
  }
  std::vector<Value> joined;
  for (size_t place = 0; place < manifest.state.size(); ++place) {
    const StateInfo& entry = manifest.state[place];
    const std::vector<int64_t> dims = DimsOf(manifest, entry, static_cast<int64_t>(rows.size()), read, source);
    const int64_t of_read = entry.Axis("S"), of_source = entry.Axis("M");
    const int64_t axis = std::max({of_read, of_source, int64_t{0}});
    const int64_t bytes = BytesOf(entry.dtype);
    // A row is `before` runs of `length` places of `after` bytes each; without a growing axis all is in a place.
    const int64_t before = axis > 0 ? Product(dims.begin() + 1, dims.begin() + axis) : 1;
    const int64_t after = bytes * Product(dims.begin() + axis + 1, dims.end());
    Value value = FilledTensor(entry.dtype, dims, 0);
    auto* to = static_cast<char*>(const_cast<Ort::Value&>(*value).GetTensorMutableRawData());
    const int64_t length = axis > 0 ? dims[static_cast<size_t>(axis)] : 1;
    for (const StateRow& row : rows) {
      const Value& old = (*row.state)[place];
      const std::vector<int64_t> old_dims = Dims(old);
      const int64_t old_length = axis > 0 ? old_dims[static_cast<size_t>(axis)] : 1;
      const int64_t kept = axis == 0 ? 1 : axis == of_read ? row.read : row.source;
      if (old_dims.size() != dims.size() || row.row >= old_dims[0] || kept > old_length) {
        Refuse(StatusCode::kDamagedBundle, "state entry ", entry.name, " has the shape (", Listed(old_dims),
               "), which its manifest does not explain");
      }
      const auto* from = static_cast<const char*>(old->GetTensorRawData()) + row.row * before * old_length * after;
      const bool at_end = axis > 0 && axis == of_read;
      for (int64_t run = 0; run < before; ++run) {
        const char* first = from + (run * old_length + (at_end ? old_length - kept : 0)) * after;
        char* into = to + (run * length + (at_end ? length - kept : 0)) * after;
        if (kept * after > 0) std::memcpy(into, first, static_cast<size_t>(kept * after));
      }
      to += before * length * after;
    }
    joined.push_back(std::move(value));
  }
  return joined;
}

int64_t BytesOf(const Manifest& manifest, int64_t rows, int64_t read, int64_t source) {
  double bytes = 0;
  for (const StateInfo& entry : manifest.state) {
    const std::vector<int64_t> dims = DimsOf(manifest, entry, rows, read, source);
    double size = static_cast<double>(BytesOf(entry.dtype));
    for (const int64_t dim : dims) size *= static_cast<double>(dim);
    bytes += size;
  }
  constexpr double kMost = static_cast<double>(int64_t{1} << 60);  // so that it can be doubled
  return static_cast<int64_t>(std::min(bytes, kMost));
}

void CheckHasRows(const Manifest& manifest) {
  for (const StateInfo& entry : manifest.state) {
    if (entry.dims.empty() || !(Is(entry.dims[0], "B") || Is(entry.dims[0], "N"))) {
      Refuse(StatusCode::kUnsupported, "state entry ", entry.name, " has no row for each text");
    }
    for (const Dim& dim : entry.dims) {
      const bool known = std::holds_alternative<int64_t>(dim) || Is(dim, "B") || Is(dim, "N") || Is(dim, "S") ||
                         Is(dim, "M") || (Is(dim, "C") && manifest.max_seq_len);
      if (!known) {
        Refuse(StatusCode::kDamagedBundle, "state entry ", entry.name, " has the dimension ",
               std::get<std::string>(dim));
      }
    }
  }
}

}  // namespace seqlab
