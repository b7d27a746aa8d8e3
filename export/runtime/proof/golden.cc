#include "golden.h"

#include <minizip/unzip.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>

#include "error.h"

namespace seqlab {
namespace {

template <typename Stored>
double At(const char* data) {
  Stored value;
  std::memcpy(&value, data, sizeof(value));
  return static_cast<double>(value);
}

double HalfAt(const char* data) {
  uint16_t bits = 0;
  std::memcpy(&bits, data, sizeof(bits));
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size = exponent == 31  ? (fraction == 0 ? HUGE_VAL : std::nan(""))
                      : exponent == 0 ? std::ldexp(fraction, -24)
                                      : std::ldexp(fraction + 1024, exponent - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}

using Reader = double (*)(const char*);

// Returns the function that reads one number of a NumPy type, and the number's size in bytes.
std::pair<Reader, size_t> ReaderOf(const std::string& type) {
  static const std::map<std::string, std::pair<Reader, size_t>> readers = {
      {"|b1", {At<uint8_t>, 1}},  {"|u1", {At<uint8_t>, 1}}, {"|i1", {At<int8_t>, 1}},  {"<i2", {At<int16_t>, 2}},
      {"<u2", {At<uint16_t>, 2}}, {"<i4", {At<int32_t>, 4}}, {"<i8", {At<int64_t>, 8}}, {"<f2", {HalfAt, 2}},
      {"<f4", {At<float>, 4}},    {"<f8", {At<double>, 8}}};
  const auto found = readers.find(type);
  if (found == readers.end()) Refuse("golden files have no arrays of type \"", type, "\"");
  return found->second;
}

// Returns the text between two strings of a header that NumPy wrote.
std::string Between(std::string_view header, std::string_view before, std::string_view after) {
  const size_t first = header.find(before);
  const size_t end = first == std::string_view::npos ? first : header.find(after, first + before.size());
  if (end == std::string_view::npos) Refuse("the header of an array is not as NumPy writes it: ", header);
  return std::string(header.substr(first + before.size(), end - first - before.size()));
}

// Reads an ASCII text that NumPy stores as UTF-32.
std::string TextOf(std::string_view data) {
  std::string text;
  for (size_t place = 0; place + 4 <= data.size(); place += 4) {
    if (data[place] != '\0') text += data[place];
  }
  return text;
}

std::string Shown(const std::vector<int64_t>& dims) {
  std::string text;
  for (const int64_t dim : dims) text += Join(text.empty() ? "" : ", ", dim == kAny ? "any" : std::to_string(dim));
  return "(" + text + ")";
}

bool Fits(int64_t wanted, int64_t dim) { return wanted == kAny ? dim > 0 : dim == wanted; }

}  // namespace

std::string NpyArray::Bytes() const {
  std::string bytes;
  for (const double value : values) bytes += static_cast<char>(static_cast<unsigned char>(value));
  return bytes;
}

NpyArray ParseNpy(std::string_view content) {
  if (content.size() < 12 || content.substr(0, 6) != "\x93NUMPY") Refuse("an array does not begin as .npy files do");
  const bool wide = content[6] > 1;
  const size_t begin = wide ? 12 : 10;
  uint32_t size = 0;
  std::memcpy(&size, content.data() + 8, wide ? 4 : 2);
  if (size > content.size() - begin) Refuse("the header of an array is truncated");
  const std::string_view header = content.substr(begin, size);
  NpyArray array;
  const std::string type = Between(header, "{'descr': '", "', 'fortran_order': False, 'shape': (");
  int64_t count = 1;
  std::istringstream shape(Between(header, "'shape': (", "), }"));
  const auto bytes = static_cast<int64_t>(content.size());
  for (std::string dim; std::getline(shape, dim, ',');) {
    const int64_t size_of_dim = std::strtoll(dim.c_str(), nullptr, 10);
    if (size_of_dim < 0 || size_of_dim > bytes || count * size_of_dim > bytes) {
      Refuse("an array is longer than its file");
    }
    array.dims.push_back(size_of_dim);
    count *= size_of_dim;
  }
  const std::string_view data = content.substr(begin + size);
  if (type.rfind("<U", 0) == 0 && array.dims.empty()) {
    array.text = TextOf(data);
    return array;
  }
  const auto [read, width] = ReaderOf(type);
  if (data.size() != static_cast<size_t>(count) * width)
    Refuse("an array has ", data.size(), " bytes, not ", count, " x ", width);
  array.values.reserve(static_cast<size_t>(count));
  for (int64_t place = 0; place < count; ++place)
    array.values.push_back(read(data.data() + place * static_cast<int64_t>(width)));
  return array;
}

GoldenFile::GoldenFile(const std::filesystem::path& path) {
  constexpr std::string_view kSuffix = ".npy";
  const std::unique_ptr<void, int (*)(void*)> file(unzOpen64(path.c_str()), unzClose);
  if (!file) Refuse(path.string(), " is not a zip file");
  std::error_code error;
  auto left = static_cast<uint64_t>(std::filesystem::file_size(path, error));
  for (int next = unzGoToFirstFile(file.get()); next == UNZ_OK; next = unzGoToNextFile(file.get())) {
    unz_file_info64 info{};
    std::string name(4096, '\0'), content;
    unzGetCurrentFileInfo64(file.get(), &info, name.data(), name.size() - 1, nullptr, 0, nullptr, 0);
    name.resize(std::strlen(name.c_str()));
    if (info.compression_method != 0 || (info.flag & 1) != 0 || info.uncompressed_size > left) {
      Refuse(path.string(), ": it is compressed, or would unpack to more than it is long");
    }
    left -= info.uncompressed_size;
    const bool named = name.size() > kSuffix.size() && name.substr(name.size() - kSuffix.size()) == kSuffix;
    if (!named || unzOpenCurrentFile(file.get()) != UNZ_OK)
      Refuse(path.string(), ": ", name, " is not a readable array");
    std::string buffer(1 << 16, '\0');
    int count = 0;
    while ((count = unzReadCurrentFile(file.get(), buffer.data(), static_cast<unsigned>(buffer.size()))) > 0) {
      content.append(buffer, 0, static_cast<size_t>(count));
    }
    // Closing the file checks its checksum.
    if (count < 0 || unzCloseCurrentFile(file.get()) != UNZ_OK) Refuse(path.string(), ": ", name, " is damaged");
    try {
      arrays_[name.substr(0, name.size() - kSuffix.size())] = ParseNpy(content);
    } catch (const Refusal& refusal) {
      Refuse(path.string(), ": ", name, ": ", refusal.what());
    }
  }
}

const NpyArray& GoldenFile::At(const std::string& name, const std::vector<int64_t>& dims) const {
  const auto found = arrays_.find(name);
  if (found == arrays_.end()) Refuse("the golden file does not have ", name);
  const std::vector<int64_t>& actual = found->second.dims;
  if (actual.size() < dims.size() || !std::equal(dims.begin(), dims.end(), actual.begin(), Fits)) {
    Refuse(name, " of the golden file has shape ", Shown(actual), ", which should begin with ", Shown(dims));
  }
  return found->second;
}

double GoldenFile::Number(const std::string& name) const {
  const std::vector<double>& numbers = At(name).values;
  if (numbers.empty()) Refuse(name, " of the golden file is text, and should be numbers");
  return numbers[0];
}

}  // namespace seqlab
