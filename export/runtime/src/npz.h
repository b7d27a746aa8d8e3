// NumPy's .npz: arrays by name, in a zip file.
#ifndef SEQLAB_NPZ_H_
#define SEQLAB_NPZ_H_

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
};

// Reads the content of a .npy file. Throws Refusal where it is damaged, or of a type that goldens do not have.
NpyArray ParseNpy(std::string_view content);

// Reads all arrays of a .npz file.
std::map<std::string, NpyArray> LoadNpz(const std::filesystem::path& path);

}  // namespace seqlab

#endif  // SEQLAB_NPZ_H_
