// The golden file of a bundle, a .npz of NumPy: arrays by name in a zip file.
#ifndef SEQLAB_GOLDEN_H_
#define SEQLAB_GOLDEN_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace seqlab {

// An array of numbers, or one text. float64 is exact for integers below 2^53.
struct NpyArray {
  std::vector<int64_t> dims;
  std::vector<double> values;
  std::string text;

  // Returns numbers that are bytes as a string.
  std::string Bytes() const;
};

// Reads the content of a .npy file. Throws Refusal if it is damaged, or of a type that golden files do not have.
NpyArray ParseNpy(std::string_view content);

// A dimension that may be any number but 0.
inline constexpr int64_t kAny = -1;

class GoldenFile {
 public:
  // Throws Refusal if the file is damaged, compressed, or would unpack to more than its size.
  explicit GoldenFile(const std::filesystem::path& path);

  bool Has(const std::string& name) const { return arrays_.count(name) > 0; }

  // Returns an array, whose dimensions must begin with `dims`. Throws Refusal if there is none.
  const NpyArray& At(const std::string& name, const std::vector<int64_t>& dims = {}) const;

  // Returns the first number of an array. Throws Refusal if it has none.
  double Number(const std::string& name) const;

 private:
  std::map<std::string, NpyArray> arrays_;
};

}  // namespace seqlab

#endif  // SEQLAB_GOLDEN_H_
