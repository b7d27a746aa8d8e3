// What a bundle says about itself: `manifest.json`, which docs/bundle.md explains.
#ifndef SEQLAB_MANIFEST_H_
#define SEQLAB_MANIFEST_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace seqlab {

inline constexpr const char* kManifestName = "manifest.json";

enum class DType { kBool, kInt64, kFloat16, kFloat32 };

// A number, or one of "B", "T", "T+1", "S", "S+T", "S+1", "M", "C" and "N".
using Dim = std::variant<int64_t, std::string>;

struct TensorInfo {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<Dim> dims;

  // The axis of this dimension, or -1.
  int64_t Axis(const std::string& dim) const;
  bool IsFloat() const { return dtype == DType::kFloat16 || dtype == DType::kFloat32; }
};

struct StateInfo : TensorInfo {
  std::optional<double> initial;  // of every element; none = the encoder's output
};

struct GraphInfo {
  std::string file;
  std::vector<TensorInfo> inputs, outputs;
};

struct Manifest {
  std::string min_onnxruntime, target, precision;
  std::optional<int64_t> vocab_size, max_seq_len, max_source_len;
  int64_t seq_len = 0, first_call = 1;
  std::vector<int64_t> stop_ids;  // tokens that end what a decoder writes
  std::optional<GraphInfo> encoder, model, step, taps;
  std::vector<StateInfo> state;
  std::vector<std::string> in_place;  // entries whose new value `step` may write where the old one stands
  std::optional<std::string> tokenizer, source_tokenizer;
  std::vector<std::string> labels;
  std::string golden;
  std::map<std::string, std::string> files;
  std::string run_id, commit;

  // Those that there are: of the encoder, of sequences, of steps.
  std::vector<const GraphInfo*> Graphs() const;

  // Of the decoder's first state of one text, but for what was read of a source.
  double StateBytes() const;
};

// Reads the text of a manifest. Throws Refusal where it is not as this version writes it.
Manifest ParseManifest(const std::string& text);

// Reads the manifest of a bundle. Throws Refusal where there is none, or it is not as this version writes it.
Manifest LoadManifest(const std::filesystem::path& folder);

// What is wrong with each file that is not as the manifest says, or that it does not list.
std::map<std::string, std::string> FindDamage(const std::filesystem::path& folder, const Manifest& manifest);

// "1.30.2" as (1, 30). Throws Refusal where it is no version.
std::pair<int, int> ParseVersion(const std::string& text);

// "float32" and so on.
const char* Name(DType dtype);

}  // namespace seqlab

#endif  // SEQLAB_MANIFEST_H_
