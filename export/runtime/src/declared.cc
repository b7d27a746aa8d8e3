#include "declared.h"

#include <algorithm>

#include "error.h"
#include "files.h"
#include "texts.h"

namespace seqlab {
namespace {

constexpr const char* kWeightsName = "weights.bin";

std::string Shown(const std::vector<std::string>& dims) {
  std::string text;
  for (const std::string& dim : dims) text += Join(text.empty() ? "" : ", ", dim);
  return "(" + text + ")";
}

std::string Shown(const Dim& dim) {
  const auto* name = std::get_if<std::string>(&dim);
  return name != nullptr ? *name : std::to_string(std::get<int64_t>(dim));
}

void CheckStatements(const Model::Impl& bundle, const GoldenFile& golden, Report& report) {
  const std::string statement = BytesOf(golden.At("model", {kAny}));
  for (const auto& [name, alike] : StatedAlike(bundle.folder, statement)) {
    report.checks.push_back({"statements", name, alike, alike ? "" : "the manifest and the model differ"});
  }
}

void CheckTexts(const Model::Impl& bundle, const GoldenFile& golden, Report& report) {
  for (const auto& place : {bundle.manifest.tokenizer, bundle.manifest.source_tokenizer}) {
    if (!place) continue;
    std::string note;
    try {
      note = TextDifference(bundle, *place, golden);
    } catch (const std::exception& error) {
      note = Join("it cannot be loaded: ", error.what());
    }
    report.checks.push_back({"texts", *place, note.empty(), note});
  }
}

void CheckWeights(const Model::Impl& bundle, const GoldenFile& golden, Report& report) {
  const std::filesystem::path path = bundle.folder / kWeightsName;
  if (!std::filesystem::is_regular_file(path) || std::filesystem::file_size(path) == 0) return;
  const NpyArray& places = golden.At("weights/places", {kAny, 2});
  const NpyArray& digests = golden.At("weights/sha256", {places.dims[0], 32});
  const std::string digits = HexOf(BytesOf(digests));
  std::string note;
  for (size_t place = 0; place < places.values.size() / 2; ++place) {
    const auto offset = static_cast<int64_t>(places.values[2 * place]);
    const auto length = static_cast<int64_t>(places.values[2 * place + 1]);
    if (Sha256OfPart(path, offset, length) == digits.substr(64 * place, 64)) continue;
    if (note.empty()) note = Join("bytes ", offset, " to ", offset + length, " are not the model's");
  }
  report.checks.push_back({"weights", kWeightsName, note.empty(), note});
}

void CheckSignature(const Graph& graph, std::optional<int64_t> max_seq_len, Report& report) {
  const GraphInfo& info = graph.info();
  const std::vector<Graph::Declared> declared = graph.Declarations();
  std::vector<const TensorInfo*> expected;
  for (const auto* tensors : {&info.inputs, &info.outputs}) {
    for (const TensorInfo& tensor : *tensors) expected.push_back(&tensor);
  }
  for (const TensorInfo* tensor : expected) {
    std::vector<std::string> dims;
    for (const Dim& dim : tensor->dims) {
      dims.push_back(dim == Dim("C") ? std::to_string(*max_seq_len) : Shown(dim));
    }
    const std::string wanted = Join(Name(tensor->dtype), " ", Shown(dims));
    const auto found = std::find_if(declared.begin(), declared.end(),
                                    [&](const Graph::Declared& some) { return some.name == tensor->name; });
    const std::string has = found == declared.end() ? "nothing" : Join(found->type, " ", Shown(found->dims));
    const std::string note = has == wanted ? "" : Join("the graph has ", has, ", the manifest ", wanted);
    report.checks.push_back({"signature", info.file + " " + tensor->name, has == wanted, note});
  }
  for (const Graph::Declared& some : declared) {
    const bool known = std::any_of(expected.begin(), expected.end(),
                                   [&](const TensorInfo* tensor) { return tensor->name == some.name; });
    if (!known) report.checks.push_back({"signature", info.file + " " + some.name, false, "the manifest lacks it"});
  }
}

}  // namespace

void CheckDeclared(const Model::Impl& bundle, const GoldenFile& golden, Report& report) {
  CheckStatements(bundle, golden, report);
  CheckTexts(bundle, golden, report);
  CheckWeights(bundle, golden, report);
  if (!report.ok()) return;
  for (const auto* graph : {bundle.encoder.get(), bundle.model.get(), bundle.step.get()}) {
    if (graph != nullptr) CheckSignature(*graph, bundle.manifest.max_seq_len, report);
  }
}

}  // namespace seqlab
