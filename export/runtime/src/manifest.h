// Manifest of a bundle: `manifest.json`, which docs/bundle.md explains. Its fields are those of manifest_fields.json.
#ifndef SEQLAB_MANIFEST_H_
#define SEQLAB_MANIFEST_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "manifest_fields.h"

namespace seqlab {

// A fixed size, or one of `kDims`.
using Dim = std::variant<int64_t, std::string>;

#define SEQLAB_MEMBER(name, rule, ...) __VA_ARGS__ name{};

struct TensorInfo {
  SEQLAB_TENSOR_FIELDS(SEQLAB_MEMBER)

  // The axis of this dimension, or -1.
  int64_t Axis(const std::string& dim) const;
  bool IsFloat() const { return dtype == DType::kFloat16 || dtype == DType::kFloat32; }
};

// `initial` is the value of every element; none = the encoder's output.
struct StateInfo : TensorInfo {
  SEQLAB_STATE_FIELDS(SEQLAB_MEMBER)
};

struct GraphInfo {
  SEQLAB_GRAPH_FIELDS(SEQLAB_MEMBER)
};

struct ProvenanceInfo {
  SEQLAB_PROVENANCE_FIELDS(SEQLAB_MEMBER)
};

struct Manifest {
  SEQLAB_MANIFEST_FIELDS(SEQLAB_MEMBER)

  // The graphs present in the bundle, in the order encoder, model, step.
  std::vector<const GraphInfo*> Graphs() const;

  // Size in bytes of the decoder's first state of one text, excluding entries computed from a source.
  double StateBytes() const;
};

#undef SEQLAB_MEMBER

// Reads the text of a manifest. Throws Refusal if it is not in the format of this version.
Manifest ParseManifest(const std::string& text);

// Reads the manifest of a bundle. Throws Refusal if it does not exist, or is not in the format of this version.
Manifest LoadManifest(const std::filesystem::path& folder);

// Defect of each file that does not match the manifest, or is not listed in it.
std::map<std::string, std::string> FindDamage(const std::filesystem::path& folder, const Manifest& manifest);

// Major and minor version of a text: "1.30.2" is (1, 30). Throws Refusal if it is not a version.
std::pair<int, int> ParseVersion(const std::string& text);

// Name of a type in a manifest, such as "float32".
const char* Name(DType dtype);

}  // namespace seqlab

#endif  // SEQLAB_MANIFEST_H_
