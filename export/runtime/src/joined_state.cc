#include "joined_state.h"

#include <algorithm>
#include <cstring>

#include "error.h"

namespace seqlab {
namespace {

int64_t Product(std::vector<int64_t>::const_iterator first, std::vector<int64_t>::const_iterator last) {
  int64_t product = 1;
  for (; first != last; ++first) product *= *first;
  return product;
}

// Length of an entry's axis in another batch, 1 for axis 0. Throws Refusal if the entry is not what the manifest says:
// a graph may give anything.
int64_t CheckedLength(const StateInfo& entry, const Value& value, int64_t row, std::vector<int64_t> sizes,
                      int64_t axis) {
  const std::vector<int64_t> dims = Dims(value);
  const bool same_rank = dims.size() == sizes.size();
  for (const int64_t other : {int64_t{0}, axis}) {
    if (same_rank) sizes[static_cast<size_t>(other)] = dims[static_cast<size_t>(other)];
  }
  if (dims != sizes || row >= dims[0] || TypeOf(value) != TypeOf(entry.dtype)) {
    Refuse(StatusCode::kDamagedBundle, "a graph gives state entry ", entry.name, " the shape (", Listed(dims),
           ") or a type, which its manifest does not");
  }
  return axis > 0 ? dims[static_cast<size_t>(axis)] : 1;
}

}  // namespace

std::vector<int64_t> SizesOf(const Manifest& manifest, const StateInfo& entry, int64_t rows, int64_t read,
                             int64_t source) {
  std::vector<int64_t> sizes;
  for (const Dim& dim : entry.dims) {
    const auto* name = std::get_if<std::string>(&dim);
    if (name == nullptr) {
      sizes.push_back(std::get<int64_t>(dim));
    } else if (*name == "B" || *name == "N") {
      sizes.push_back(rows);
    } else if (*name == "S") {
      sizes.push_back(read);
    } else if (*name == "M") {
      sizes.push_back(source);
    } else if (*name == "C" && manifest.max_seq_len) {
      sizes.push_back(*manifest.max_seq_len);
    } else {
      Refuse(StatusCode::kDamagedBundle, "state entry ", entry.name, " cannot have the dimension ", *name);
    }
  }
  return sizes;
}

std::vector<Value> Joined(const Manifest& manifest, const std::vector<StateRow>& rows) {
  int64_t read = 0, source = 0;
  for (const StateRow& row : rows) {
    read = std::max(read, row.read);
    source = std::max(source, row.source);
  }
  std::vector<Value> joined;
  for (size_t place = 0; place < manifest.state.size(); ++place) {
    const StateInfo& entry = manifest.state[place];
    const std::vector<int64_t> dims = SizesOf(manifest, entry, static_cast<int64_t>(rows.size()), read, source);
    const int64_t of_read = entry.Axis("S"), of_source = entry.Axis("M");
    const int64_t axis = std::max({of_read, of_source, int64_t{0}});
    const auto bytes = static_cast<int64_t>(SizeOf(TypeOf(entry.dtype)));
    // A row is `before` runs of `length` places of `after` bytes each; without a growing axis all is in a place.
    const int64_t before = axis > 0 ? Product(dims.begin() + 1, dims.begin() + axis) : 1;
    const int64_t after = bytes * Product(dims.begin() + axis + 1, dims.end());
    Value value = FilledTensor(entry.dtype, dims, 0);
    auto* to = static_cast<char*>(const_cast<Ort::Value&>(*value).GetTensorMutableRawData());
    const int64_t length = axis > 0 ? dims[static_cast<size_t>(axis)] : 1;
    for (const StateRow& row : rows) {
      const Value& old = (*row.state)[place];
      const int64_t old_length = CheckedLength(entry, old, row.row, dims, axis);
      const int64_t kept = axis == 0 ? 1 : axis == of_read ? row.read : row.source;
      if (kept > old_length) {
        Refuse(StatusCode::kDamagedBundle, "state entry ", entry.name, " has ", old_length, " places for ", kept);
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
    const std::vector<int64_t> dims = SizesOf(manifest, entry, rows, read, source);
    double size = static_cast<double>(SizeOf(TypeOf(entry.dtype)));
    for (const int64_t dim : dims) size *= static_cast<double>(dim);
    bytes += size;
  }
  constexpr double kMost = static_cast<double>(int64_t{1} << 60);  // so that it can be doubled
  return static_cast<int64_t>(std::min(bytes, kMost));
}

void CheckHasRows(const Manifest& manifest) {
  for (const StateInfo& entry : manifest.state) {
    if (entry.Axis("B") != 0 && entry.Axis("N") != 0) {
      Refuse(StatusCode::kUnsupported, "state entry ", entry.name, " has no row for each text");
    }
    SizesOf(manifest, entry, 1, 0, 0);
  }
}

}  // namespace seqlab
