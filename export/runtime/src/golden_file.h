// The golden file of a bundle: arrays by name, and the shapes that a proof counts on.
#ifndef SEQLAB_GOLDEN_FILE_H_
#define SEQLAB_GOLDEN_FILE_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "npz.h"

namespace seqlab {

// Any number but 0.
inline constexpr int64_t kAny = -1;

class GoldenFile {
 public:
  explicit GoldenFile(const std::filesystem::path& path) : arrays_(LoadNpz(path)) {}

  bool Has(const std::string& name) const { return arrays_.count(name) > 0; }

  // An array whose dimensions begin with these. Throws Refusal where there is none.
  const NpyArray& At(const std::string& name, const std::vector<int64_t>& dims = {}) const;

 private:
  const std::map<std::string, NpyArray> arrays_;
};

}  // namespace seqlab

#endif  // SEQLAB_GOLDEN_FILE_H_
