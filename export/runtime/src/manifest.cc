#include "manifest.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "error.h"
#include "files.h"
#include "graph_file.h"
#include "json_fields.h"

namespace seqlab {
namespace {

constexpr const char* kSealName = "manifest.sha256";
constexpr const char* kWeightsName = "weights.bin";
constexpr const char* kFormat = "seqlab-bundle";
constexpr int64_t kVersion = 7;
// Of a graph, whose weights are elsewhere, or a manifest; and of all files but the weights.
constexpr uintmax_t kMostGraphBytes = uintmax_t{1} << 25, kMostBytes = uintmax_t{1} << 30;
// Of the state of one text, at 8 bytes a number.
constexpr double kMostStateBytes = 4294967296.0;
constexpr std::array<const char*, 4> kDTypes = {"bool", "int64", "float16", "float32"};
constexpr std::array<const char*, 9> kDims = {"B", "T", "T+1", "S", "S+T", "S+1", "M", "C", "N"};
constexpr std::array<const char*, 5> kPrecisions = {"fp32", "fp16", "bf16", "int8", "int4"};
constexpr std::array<const char*, 3> kTargets = {"portable", "ort", "cuda-graph"};

template <size_t N>
std::string OneOf(const Field& field, const std::array<const char*, N>& accepted) {
  std::string value = field.String();
  if (std::find(accepted.begin(), accepted.end(), value) != accepted.end()) return value;
  Refuse(field.place(), " must be one of ", Listed(accepted), ", got \"", value.substr(0, 60), "\"");
}

DType ReadDType(const Field& field) {
  const std::string name = OneOf(field, kDTypes);
  return static_cast<DType>(std::find(kDTypes.begin(), kDTypes.end(), name) - kDTypes.begin());
}

std::vector<Dim> ReadDims(const Field& field) {
  std::vector<Dim> dims;
  for (const Field& item : field.Items()) {
    dims.push_back(item.IsString() ? Dim(OneOf(item, kDims)) : Dim(item.Int(0)));
  }
  return dims;
}

std::vector<TensorInfo> ReadTensors(const Field& field) {
  std::vector<TensorInfo> tensors;
  for (const Field& item : field.Items()) {
    item.MustHaveExactly({"name", "dtype", "dims"});
    tensors.push_back({item["name"].String(), ReadDType(item["dtype"]), ReadDims(item["dims"])});
  }
  return tensors;
}

std::vector<StateInfo> ReadState(const Field& field) {
  std::vector<StateInfo> state;
  for (const Field& item : field.Items()) {
    item.MustHaveExactly({"name", "dtype", "dims", "initial"});
    TensorInfo info{item["name"].String(), ReadDType(item["dtype"]), ReadDims(item["dims"])};
    if ((info.Axis("B") != 0 && info.Axis("N") != 0) || info.Axis("T") >= 0) {
      Refuse(item.place(), ".dims must begin with B or N and hold no T");
    }
    state.push_back({std::move(info), item["initial"].NumberOrNull()});
  }
  return state;
}

std::optional<GraphInfo> ReadGraph(const Field& field) {
  if (field.IsNull()) return std::nullopt;
  field.MustHaveExactly({"file", "inputs", "outputs"});
  return GraphInfo{field["file"].String(), ReadTensors(field["inputs"]), ReadTensors(field["outputs"])};
}

bool Has(const std::vector<TensorInfo>& tensors, const std::string& name) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const TensorInfo& tensor) { return tensor.name == name; });
}

void CheckDecoder(const Manifest& manifest) {
  for (const GraphInfo* graph : {&*manifest.model, &*manifest.step}) {
    for (const TensorInfo& output : graph->outputs) {
      const bool fits = output.dims.size() == 3 && output.IsFloat() && output.dims[2] == Dim(*manifest.vocab_size);
      if (output.name == "logits" && !fits) {
        Refuse(graph->file, " gives no logits (B, T, ", *manifest.vocab_size, ")");
      }
    }
    if (!Has(graph->outputs, "logits")) Refuse(graph->file, " gives no logits");
    if (!Has(graph->inputs, "tokens") || !Has(graph->inputs, "pad_mask")) {
      Refuse(graph->file, " takes no tokens, or no pad_mask");
    }
  }
  for (const StateInfo& entry : manifest.state) {
    if (entry.Axis("C") >= 0 && !manifest.max_seq_len) {
      Refuse("state entry ", entry.name, " has the dimension C, but there is no max_seq_len");
    }
    if (!entry.initial && !manifest.encoder) Refuse("state entry ", entry.name, " starts as nothing says");
    if (manifest.encoder && !Has(manifest.encoder->outputs, "state_" + entry.name)) {
      Refuse(manifest.encoder->file, " gives no state_", entry.name);
    }
  }
  if (const double bytes = manifest.StateBytes(); bytes > kMostStateBytes) {
    Refuse("its state takes ", bytes, " bytes a text, at most 4294967296 are accepted");
  }
}

void CheckWhole(const Manifest& manifest) {
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
  if (manifest.taps) needed.push_back(manifest.taps->file);
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
  if (manifest.model) CheckDecoder(manifest);
}

// The files that are too large to be what they should be: a hole of gigabytes takes no room, but time to hash.
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
  for (const auto* graph : {&manifest.encoder, &manifest.model, &manifest.step, &manifest.taps}) {
    if (!*graph) continue;
    const auto size = sizes.find((*graph)->file);
    if (size == sizes.end()) {
      needed = kMostBytes;
    } else if (size->second > kMostGraphBytes) {
      wrong[size->first] = Join("it has ", size->second, " bytes, a graph has at most ", kMostGraphBytes);
    } else {
      try {
        needed = std::max(needed, static_cast<uintmax_t>(EndOfWeights(folder / size->first)));
      } catch (const Refusal&) {  // its hash, or who opens it, tells what is wrong
        needed = kMostBytes;
      }
    }
  }
  if (total > kMostBytes) {
    for (const auto& size : sizes) {
      wrong.try_emplace(size.first, Join("all files but the weights have ", total, " bytes, at most ", kMostBytes, " are accepted"));
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
  const std::map<std::string, double> sizes = {{"B", 1.0}, {"N", 1.0}, {"C", static_cast<double>(max_seq_len.value_or(0))}};
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
    Refuse("it has version ", version.Int(0), ", this program reads version ", kVersion);
  }
  root.MustHaveExactly({"format", "version", "min_onnxruntime", "target", "precision", "vocab_size",
                        "max_seq_len", "max_source_len", "seq_len", "stop_ids", "first_call", "encoder", "model", "step", "taps",
                        "state", "in_place", "tokenizer", "source_tokenizer", "labels", "golden", "files",
                        "provenance"});
  const Field provenance = root["provenance"];
  provenance.MustHaveExactly({"run_id", "commit", "seqlab", "torch", "onnxruntime"});
  for (const auto& member : provenance.Members()) member.second.String();
  Manifest manifest;
  manifest.min_onnxruntime = root["min_onnxruntime"].String();
  manifest.target = OneOf(root["target"], kTargets);
  manifest.precision = OneOf(root["precision"], kPrecisions);
  manifest.vocab_size = root["vocab_size"].IntOrNull(1);
  manifest.max_seq_len = root["max_seq_len"].IntOrNull(1);
  manifest.max_source_len = root["max_source_len"].IntOrNull(1);
  manifest.seq_len = root["seq_len"].Int(1);
  for (const Field& token : root["stop_ids"].Items()) manifest.stop_ids.push_back(token.Int(0));
  manifest.first_call = root["first_call"].Int(1);
  manifest.encoder = ReadGraph(root["encoder"]);
  manifest.model = ReadGraph(root["model"]);
  manifest.step = ReadGraph(root["step"]);
  manifest.state = ReadState(root["state"]);
  manifest.in_place = root["in_place"].Strings();
  manifest.taps = ReadGraph(root["taps"]);
  manifest.tokenizer = root["tokenizer"].StringOrNull();
  manifest.source_tokenizer = root["source_tokenizer"].StringOrNull();
  manifest.labels = root["labels"].Strings();
  manifest.golden = root["golden"].String();
  for (const auto& [name, sha256] : root["files"].Members()) manifest.files[name] = sha256.String();
  manifest.run_id = provenance["run_id"].String();
  manifest.commit = provenance["commit"].String();
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
    Refuse(StatusCode::kDamagedBundle, path.string(), " has ", size, " bytes, a manifest has at most ", kMostGraphBytes);
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

const char* Name(DType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }

}  // namespace seqlab
