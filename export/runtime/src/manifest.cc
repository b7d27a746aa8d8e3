#include "manifest.h"

#include <algorithm>
#include <cstdio>

#include "error.h"
#include "files.h"
#include "graph_file.h"
#include "json_fields.h"

namespace seqlab {
namespace {

constexpr uintmax_t kMostGraphBytes = uintmax_t{1} << kMostGraphBits, kMostBytes = uintmax_t{1} << kMostFilesBits;
constexpr int64_t kMostStateBytes = int64_t{1} << kMostStateBits;

// The place of a field's text among the accepted names.
template <typename Named, size_t N>
size_t IndexOf(const Field& field, const Named (&accepted)[N]) {
  const std::string value = field.String();
  const auto found = std::find_if(accepted, accepted + N, [&](const Named& named) { return value == named.first; });
  if (found != accepted + N) return static_cast<size_t>(found - accepted);
  std::vector<std::string> names;
  for (const Named& named : accepted) names.emplace_back(named.first);
  Refuse(field.place(), " must be one of ", Listed(names), ", got \"", value.substr(0, 60), "\"");
}

#define SEQLAB_NAME(name, ...) #name,
#define SEQLAB_READ(name, rule, ...) Read(field[#name], rule, value.name);
#define SEQLAB_TENSOR_AND_STATE_FIELDS(FIELD) SEQLAB_TENSOR_FIELDS(FIELD) SEQLAB_STATE_FIELDS(FIELD)
#define SEQLAB_OBJECT(Type, FIELDS, ...)                       \
  static void Read(const Field& field, int64_t, Type& value) { \
    field.MustHaveExactly({FIELDS(SEQLAB_NAME)}, __VA_ARGS__); \
    FIELDS(SEQLAB_READ)                                        \
  }

// Reads a value of each type of field. The rule is the least value of a count, or the accepted names.
struct ManifestReader {
  static void Read(const Field& field, int64_t, std::string& value) { value = field.String(); }
  static void Read(const Field& field, int64_t, double& value) { value = field.Number(); }
  static void Read(const Field& field, int64_t least, int64_t& value) { value = field.Int(least); }

  template <typename Named, size_t N>
  static void Read(const Field& field, const Named (&accepted)[N], std::string& value) {
    value = accepted[IndexOf(field, accepted)].first;
  }

  template <typename Named, size_t N>
  static void Read(const Field& field, const Named (&accepted)[N], DType& value) {
    value = static_cast<DType>(IndexOf(field, accepted));
  }

  template <typename Named, size_t N>
  static void Read(const Field& field, const Named (&accepted)[N], Dim& value) {
    if (field.IsString()) {
      value = accepted[IndexOf(field, accepted)].first;
    } else {
      value = field.Int(0);
    }
  }

  template <typename Rule, typename Type>
  static void Read(const Field& field, const Rule& rule, std::optional<Type>& value) {
    if (!field.IsNull()) Read(field, rule, value.emplace());
  }

  template <typename Rule, typename Type>
  static void Read(const Field& field, const Rule& rule, std::vector<Type>& value) {
    for (const Field& item : field.Items()) Read(item, rule, value.emplace_back());
  }

  template <typename Rule, typename Type>
  static void Read(const Field& field, const Rule& rule, std::map<std::string, Type>& value) {
    for (const auto& [name, item] : field.Members()) Read(item, rule, value[name]);
  }

  SEQLAB_OBJECT(TensorInfo, SEQLAB_TENSOR_FIELDS, {})
  SEQLAB_OBJECT(StateInfo, SEQLAB_TENSOR_AND_STATE_FIELDS, {})
  SEQLAB_OBJECT(GraphInfo, SEQLAB_GRAPH_FIELDS, {})
  SEQLAB_OBJECT(ProvenanceInfo, SEQLAB_PROVENANCE_FIELDS, {})
  SEQLAB_OBJECT(Manifest, SEQLAB_MANIFEST_FIELDS, {"format", "version", "minor"})
};

bool Has(const std::vector<TensorInfo>& tensors, const std::string& name) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const TensorInfo& tensor) { return tensor.name == name; });
}

bool Begins(const std::vector<TensorInfo>& tensors, const std::vector<TensorInfo>& first) {
  return first.size() <= tensors.size() &&
         std::equal(first.begin(), first.end(), tensors.begin(), [](const TensorInfo& one, const TensorInfo& other) {
           return one.name == other.name && one.dtype == other.dtype && one.dims == other.dims;
         });
}

void CheckGuess(const GraphInfo& model, const GraphInfo& guess) {
  if (guess.inputs.size() != model.inputs.size() || !Begins(guess.inputs, model.inputs) ||
      guess.outputs.size() != model.outputs.size() + 1 || !Begins(guess.outputs, model.outputs)) {
    Refuse(guess.file, " must have the inputs and outputs of model, and guesses");
  }
  const TensorInfo& last = guess.outputs.back();
  const bool fits = last.name == "guesses" && last.dtype == DType::kInt64 && last.dims.size() == 3 &&
                    last.Axis("B") == 0 && last.Axis("K") == 1 && std::holds_alternative<int64_t>(last.dims[2]);
  if (!fits) Refuse(guess.file, " must end with guesses (B, K, N)");
}

void CheckDecoder(const Manifest& manifest) {
  for (const GraphInfo* graph : {&*manifest.model, &*manifest.step}) {
    for (const TensorInfo& output : graph->outputs) {
      const bool fits = output.dims.size() == 3 && output.IsFloat() && output.dims[2] == Dim(*manifest.vocab_size);
      if (output.name == "logits" && !fits) {
        Refuse(graph->file, " gives no logits of vocab_size ", *manifest.vocab_size);
      }
    }
    if (!Has(graph->outputs, "logits")) Refuse(graph->file, " gives no logits");
    for (const char* input : {"tokens", "pad_mask"}) {
      if (!Has(graph->inputs, input)) Refuse(graph->file, " takes no ", input);
    }
  }
  if (!Has(manifest.model->inputs, "scored")) Refuse(manifest.model->file, " takes no scored");
  if (manifest.guess) CheckGuess(*manifest.model, *manifest.guess);
  for (const StateInfo& entry : manifest.state) {
    if (entry.Axis("C") >= 0 && !manifest.max_seq_len) {
      Refuse("state entry ", entry.name, " has the dimension C, but there is no max_seq_len");
    }
    if (!entry.initial && !manifest.encoder)
      Refuse("state entry ", entry.name, " has no initial value and the bundle has no encoder to supply one");
    if (manifest.encoder && !Has(manifest.encoder->outputs, "state_" + entry.name)) {
      Refuse(manifest.encoder->file, " gives no state_", entry.name);
    }
  }
  if (const double bytes = manifest.StateBytes(); bytes > static_cast<double>(kMostStateBytes)) {
    Refuse("its state takes ", bytes, " bytes a text, at most ", kMostStateBytes, " are accepted");
  }
}

void CheckWhole(const Manifest& manifest) {
  for (size_t place = 0; place < manifest.state.size(); ++place) {
    const StateInfo& entry = manifest.state[place];
    if ((entry.Axis("B") != 0 && entry.Axis("N") != 0) || entry.Axis("T") >= 0) {
      Refuse("the manifest.state[", place, "].dims must begin with B or N and hold no T");
    }
  }
  if (manifest.model.has_value() != manifest.step.has_value() || manifest.Graphs().empty()) {
    Refuse("it has neither an encoder nor both graphs of a decoder");
  }
  if (manifest.model && !manifest.vocab_size) Refuse("it has a decoder and no vocab_size");
  for (const int64_t token : manifest.stop_ids) {
    if (token >= manifest.vocab_size.value_or(0)) Refuse("stop_ids has ", token, ", which is outside the vocabulary");
  }
  for (const auto& [name, sha256] : manifest.files) {
    if (!IsInside(name)) Refuse("\"", name, "\" is not a path inside the bundle");
    if (sha256.size() != 64 || sha256.find_first_not_of("0123456789abcdef") != std::string::npos) {
      Refuse("the sha256 of ", name, " is \"", sha256.substr(0, 70), "\"");
    }
  }
  std::vector<std::string> needed = {manifest.golden};
  for (const GraphInfo* graph : manifest.Graphs()) needed.push_back(graph->file);
  for (const auto* graph : {&manifest.taps, &manifest.guess}) {
    if (*graph) needed.push_back((*graph)->file);
  }
  for (const auto& folder : {manifest.tokenizer, manifest.source_tokenizer}) {
    if (folder && !IsInside(*folder)) Refuse("\"", *folder, "\" is not a path inside the bundle");
    if (folder) needed.push_back(*folder + "/tokenizer.json");
  }
  for (const std::string& name : needed) {
    if (manifest.files.count(name) == 0) Refuse("it gives no sha256 of ", name);
  }
  if (manifest.min_onnxruntime.find_first_not_of("0123456789.") != std::string::npos) {
    Refuse("\"", manifest.min_onnxruntime.substr(0, 60), "\" is not a version of onnxruntime");
  }
  ParseVersion(manifest.min_onnxruntime);
  if (manifest.encoder && (manifest.encoder->inputs.size() != 2 || manifest.encoder->outputs.empty())) {
    Refuse(manifest.encoder->file, " must take an input and its mask, and give something");
  }
  if (manifest.guess && !manifest.model) Refuse("it guesses tokens and has no decoder");
  if (manifest.model) CheckDecoder(manifest);
}

// Files that are implausibly large: a sparse file takes no disk space, but a long time to hash.
std::map<std::string, std::string> FindWrongSizes(const std::filesystem::path& folder, const Manifest& manifest) {
  std::map<std::string, uintmax_t> sizes;
  std::error_code error;
  for (const auto& file : manifest.files) {
    if (!std::filesystem::is_regular_file(folder / file.first, error)) continue;
    const uintmax_t size = std::filesystem::file_size(folder / file.first, error);
    if (!error) sizes[file.first] = size;
  }
  const auto found = sizes.find(kWeightsName);
  const uintmax_t weights = found == sizes.end() ? 0 : found->second;
  sizes.erase(kWeightsName);
  std::map<std::string, std::string> wrong;
  uintmax_t total = 0, needed = 0;
  for (const auto& size : sizes) total += size.second;
  for (const auto* graph : {&manifest.encoder, &manifest.model, &manifest.step, &manifest.taps, &manifest.guess}) {
    if (!*graph) continue;
    const auto size = sizes.find((*graph)->file);
    if (size == sizes.end()) {
      needed = kMostBytes;
    } else if (size->second > kMostGraphBytes) {
      wrong[size->first] = Join("it has ", size->second, " bytes, a graph has at most ", kMostGraphBytes);
    } else {
      try {
        needed = std::max(needed, static_cast<uintmax_t>(EndOfWeights(folder / size->first)));
      } catch (const Refusal&) {  // reported later, by its hash or when opened
        needed = kMostBytes;
      }
    }
  }
  if (total > kMostBytes) {
    for (const auto& size : sizes) {
      wrong.try_emplace(
          size.first, Join("all files but the weights have ", total, " bytes, at most ", kMostBytes, " are accepted"));
    }
  }
  if (weights > needed) wrong[kWeightsName] = Join("it has ", weights, " bytes, the graphs name ", needed);
  return wrong;
}

}  // namespace

int64_t TensorInfo::Axis(const std::string& dim) const {
  const auto found = std::find(dims.begin(), dims.end(), Dim(dim));
  return found == dims.end() ? -1 : found - dims.begin();
}

std::vector<const GraphInfo*> Manifest::Graphs() const {
  std::vector<const GraphInfo*> graphs;
  for (const auto* graph : {&encoder, &model, &step}) {
    if (*graph) graphs.push_back(&**graph);
  }
  return graphs;
}

double Manifest::StateBytes() const {
  const std::map<std::string, double> sizes = {
      {"B", 1.0}, {"N", 1.0}, {"C", static_cast<double>(max_seq_len.value_or(0))}};
  double bytes = 0.0;
  for (const StateInfo& entry : state) {
    double size = 8.0;
    for (const Dim& dim : entry.dims) {
      const auto* number = std::get_if<int64_t>(&dim);
      const auto found = number == nullptr ? sizes.find(std::get<std::string>(dim)) : sizes.end();
      size *= number != nullptr ? static_cast<double>(*number) : found != sizes.end() ? found->second : 0.0;
    }
    bytes += size;
  }
  return bytes;
}

Manifest ParseManifest(const std::string& text) {
  const Document document(text, "it");
  const Field root = document.Root("the manifest");
  if (!root.Says("format", kFormat)) Refuse("it lacks \"format\": \"", kFormat, "\"");
  if (const Field version = root["version"]; version.Int(0) != kVersion) {
    const char* older = version.Int(0) < kVersion ? "; export it again" : "";
    Refuse("it has version ", version.Int(0), ", this program reads version ", kVersion, older);
  }
  const int64_t minor = root.Has("minor") ? root["minor"].Int(0) : 0;
  Manifest manifest;
  ManifestReader::Read(minor > kMinor ? root.OfNewerMinor() : root, 0, manifest);
  CheckWhole(manifest);
  return manifest;
}

Manifest LoadManifest(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kManifestName;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    Refuse(StatusCode::kNotFound, folder.string(), " is not a bundle: it has no ", kManifestName);
  }
  if (const std::string elsewhere = Elsewhere(folder, kManifestName); !elsewhere.empty()) {
    Refuse(StatusCode::kDamagedBundle, path.string(), ": ", elsewhere);
  }
  if (const uintmax_t size = std::filesystem::file_size(path, error); !error && size > kMostGraphBytes) {
    Refuse(StatusCode::kDamagedBundle, path.string(), " has ", size, " bytes, a manifest has at most ",
           kMostGraphBytes);
  }
  try {
    return ParseManifest(ReadFile(path));
  } catch (const Refusal& refusal) {
    Refuse(StatusCode::kDamagedBundle, path.string(), ": ", refusal.what());
  }
}

std::map<std::string, std::string> FindDamage(const std::filesystem::path& folder, const Manifest& manifest) {
  if (std::string elsewhere = Elsewhere(folder, kSealName); !elsewhere.empty()) return {{kSealName, elsewhere}};
  if (ReadFile(folder / kSealName, 64) != Sha256OfFile(folder / kManifestName)) {
    return {{kManifestName, Join("its sha256 is not the one in ", kSealName)}};
  }
  std::map<std::string, std::string> damage = FindWrongSizes(folder, manifest);
  for (const auto& [name, sha256] : manifest.files) {
    if (damage.count(name) > 0) continue;
    if (std::string found = Damage(folder, name, sha256); !found.empty()) damage[name] = found;
  }
  for (const std::string& name : FilesIn(folder)) {
    const bool listed = manifest.files.count(name) > 0 || name == kManifestName || name == kSealName;
    if (!listed) damage[name] = "the manifest does not list it";
  }
  return damage;
}

std::pair<int, int> ParseVersion(const std::string& text) {
  int major = 0, minor = 0;
  if (std::sscanf(text.c_str(), "%5d.%5d", &major, &minor) != 2) {
    Refuse("\"", text.substr(0, 60), "\" is not a version of onnxruntime");
  }
  return {major, minor};
}

const char* Name(DType dtype) { return kDtypes[static_cast<size_t>(dtype)].first; }

}  // namespace seqlab
