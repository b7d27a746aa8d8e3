// The golden file of a bundle, NumPy's .npz: arrays by name, in a zip file.
#ifndef SEQLAB_GOLDEN_H_
#define SEQLAB_GOLDEN_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace seqlab {

// An array of numbers, which float64 holds exactly as long as integers are under 2^53; or one text.
struct NpyArray {
  std::vector<int64_t> dims;
  std::vector<double> values;
  std::string text;

  // Of numbers that are bytes.
  std::string Bytes() const;
};

// Reads the content of a .npy file. Throws Refusal where it is damaged, or of a type that goldens do not have.
NpyArray ParseNpy(std::string_view content);

// Any number but 0.
inline constexpr int64_t kAny = -1;

class GoldenFile {
 public:
  // Throws Refusal where it is damaged, compressed, or would unpack to more than it is long.
  explicit GoldenFile(const std::filesystem::path& path);

  bool Has(const std::string& name) const { return arrays_.count(name) > 0; }

  // An array whose dimensions begin with these. Throws Refusal where there is none.
  const NpyArray& At(const std::string& name, const std::vector<int64_t>& dims = {}) const;

 private:
  std::map<std::string, NpyArray> arrays_;
};

}  // namespace seqlab

#endif  // SEQLAB_GOLDEN_H_
