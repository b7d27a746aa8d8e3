#include "declared.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "error.h"
#include "files.h"
#include "json_fields.h"
#include "proof_constants.h"

namespace seqlab {
namespace {

std::string Shown(const Dim& dim) {
  const auto* name = std::get_if<std::string>(&dim);
  return name != nullptr ? *name : std::to_string(std::get<int64_t>(dim));
}

// Whether the manifest says what the model itself states, as JSON.
void CheckStatements(const Bundle& bundle, const GoldenFile& golden, Report& report) {
  const std::string place = "what the golden file states";
  const Document document(ReadFile(bundle.folder / kManifestName), kManifestName);
  const Document stated(golden.At("model", {kAny}).Bytes(), place);
  const auto manifest = document.Root("the manifest").Members();
  for (const auto& [name, value] : stated.Root(place).Members()) {
    const auto found = manifest.find(name);
    const bool alike = found != manifest.end() && found->second.Is(value);
    report.checks.push_back({"statements", name, alike, alike ? "" : "the manifest and the model differ"});
  }
}

// The sha256 of the length, as 4 bytes, and the bytes of every token.
std::string DigestOf(const Tokenizer& tokenizer) {
  std::string all;
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string& token = tokenizer.Bytes(id);
    for (const int shift : {0, 8, 16, 24}) all += static_cast<char>(token.size() >> shift & 255);
    all += token;
  }
  return Sha256OfText(all);
}

// The sha256 of the lines "NAME SHA256" of a tokenizer's files.
std::string DigestOf(const std::map<std::string, std::string>& files, const std::string& place) {
  std::string lines;
  for (const auto& [name, sha256] : files) {
    if (name.rfind(place + "/", 0) == 0) lines += name + " " + sha256 + "\n";
  }
  return Sha256OfText(lines);
}

// The strings to encode: the text of tokens from the whole vocabulary, and strings that some tokenizers cannot encode.
std::vector<std::string> StringsFor(const Tokenizer& tokenizer) {
  const int64_t size = tokenizer.vocab_size();
  Ids ids;
  for (int64_t id = 0; id < size; id += std::max<int64_t>(size / proof::kMostIds, 1)) ids.push_back(id);
  std::vector<std::string> strings(std::begin(proof::kStrings), std::end(proof::kStrings));
  strings.insert(strings.begin(), tokenizer.Decode(ids));
  return strings;
}

bool Holds(const Ids& ids, const NpyArray& array) {
  return std::equal(ids.begin(), ids.end(), array.values.begin(), array.values.end(),
                    [](int64_t id, double value) { return static_cast<double>(id) == value; });
}

// None where it has no tokens for the text.
std::optional<Ids> Encoded(const Tokenizer& tokenizer, const std::string& text) {
  try {
    return tokenizer.Encode(text);
  } catch (const Refusal&) {
    return std::nullopt;
  }
}

// How the first prompt of the greedy text, or what is written after it, is another text.
std::string GreedyDifference(const Tokenizer& tokenizer, const GoldenFile& golden) {
  const NpyArray& prompt = golden.At("greedy/prompt_0", {kAny});
  Ids ids = tokenizer.Encode(golden.At("greedy/prompt_text").Bytes());
  if (ids.empty()) ids = {tokenizer.bos_id()};
  ids.resize(std::min(ids.size(), prompt.values.size()));
  if (!Holds(ids, prompt)) return "the prompt has other ids than at export";
  const NpyArray& tokens = golden.At("greedy/tokens", {kAny, kAny});
  const Ids written(tokens.values.begin(), tokens.values.begin() + tokens.dims[1]);
  return tokenizer.Decode(written) == golden.At("greedy/text").Bytes() ? "" : "the greedy text is another one";
}

// How the tokenizer of the folder `place` of a bundle is not what it was, or the greedy text of the bundle's decoder is
// another; empty = all is well. Of one that the runtime does not have only the files are compared.
std::string TextDifference(const Bundle& bundle, const std::string& place, const GoldenFile& golden) {
  const std::filesystem::path folder = bundle.folder / place;
  const std::string name = golden.At(place + "/class").text;
  const Document document(ReadFile(folder / "tokenizer.json"), "tokenizer.json");
  const std::string found = document.Root("tokenizer.json")["class"].String();
  if (found != name) return "it is a " + found + ", and was a " + name;
  if (DigestOf(bundle.manifest.files, place) != Hex(golden.At(place + "/files", {32}).Bytes())) {
    return "its files are others than at export";
  }
  if (name == "PretrainedTokenizer") return "";
  const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer(folder);
  const std::string other = "it gives another ", than = " than at export";
  if (DigestOf(*tokenizer) != Hex(golden.At(place + "/sha256", {32}).Bytes())) return other + "sha256" + than;
  if (!Holds({tokenizer->pad_id(), tokenizer->bos_id(), tokenizer->eos_id()}, golden.At(place + "/special", {3}))) {
    return other + "special" + than;
  }
  const std::vector<std::string> strings = StringsFor(*tokenizer);
  for (size_t number = 0; number < strings.size(); ++number) {
    const std::string string = Join(place, "/string_", number);
    const std::optional<Ids> ids = Encoded(*tokenizer, strings[number]);
    if (ids.has_value() != golden.Has(string)) return Join(other, "string_", number, than);
    if (!ids) continue;
    if (strings[number] != golden.At(string).Bytes()) return Join(other, "string_", number, than);
    if (!Holds(*ids, golden.At(Join(place, "/ids_", number)))) return Join(other, "ids_", number, than);
    if (tokenizer->Decode(*ids) != golden.At(Join(place, "/text_", number)).Bytes()) return Join(other, "text_", number, than);
  }
  const bool writes = bundle.model != nullptr && place == bundle.manifest.tokenizer;
  return writes ? GreedyDifference(*tokenizer, golden) : "";
}

void CheckTexts(const Bundle& bundle, const GoldenFile& golden, Report& report) {
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

void CheckWeights(const Bundle& bundle, const GoldenFile& golden, Report& report) {
  const std::filesystem::path path = bundle.folder / kWeightsName;
  if (!std::filesystem::is_regular_file(path) || std::filesystem::file_size(path) == 0) return;
  // Of N tensors (N, 2), an offset and a length, and (N, 32) bytes.
  const NpyArray& places = golden.At("weights/places", {kAny, 2});
  const NpyArray& digests = golden.At("weights/sha256", {places.dims[0], 32});
  const std::string digits = Hex(digests.Bytes());
  std::string note;
  for (size_t place = 0; place < places.values.size() / 2; ++place) {
    const auto offset = static_cast<int64_t>(places.values[2 * place]);
    const auto length = static_cast<int64_t>(places.values[2 * place + 1]);
    if (Sha256OfFile(path, offset, length) == digits.substr(64 * place, 64)) continue;
    if (note.empty()) note = Join("bytes ", offset, " to ", offset + length, " are not the model's");
  }
  report.checks.push_back({"weights", kWeightsName, note.empty(), note});
}

// Whether the debug twin is the file that was compared with the model at export.
void CheckTaps(const Manifest& manifest, const GoldenFile& golden, Report& report) {
  if (!manifest.taps) return;
  const std::string& file = manifest.taps->file;
  const bool same = manifest.files.at(file) == Hex(golden.At("taps/sha256", {32}).Bytes());
  report.checks.push_back({"twin", file, same, same ? "" : "it is not the file that was written"});
}

// "float32 (B, T, 11)"; dims without a name or number are "?".
std::string Described(const Ort::TypeInfo& info) {
  if (info.GetONNXType() != ONNX_TYPE_TENSOR) return "no tensor";
  const auto tensor = info.GetTensorTypeAndShapeInfo();
  const std::vector<int64_t> sizes = tensor.GetShape();
  std::vector<const char*> symbols(sizes.size(), nullptr);
  tensor.GetSymbolicDimensions(symbols.data(), symbols.size());
  std::vector<std::string> dims;
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    const bool named = symbols[axis] != nullptr && *symbols[axis] != '\0';
    dims.push_back(sizes[axis] >= 0 ? std::to_string(sizes[axis]) : named ? symbols[axis] : "?");
  }
  std::string type = Join("onnxruntime's type ", static_cast<int>(tensor.GetElementType()));
  for (const DType dtype : {DType::kBool, DType::kInt64, DType::kFloat16, DType::kFloat32}) {
    if (TypeOf(dtype) == tensor.GetElementType()) type = Name(dtype);
  }
  return Join(type, " (", Listed(dims), ")");
}

// By name what the file of a graph declares, inputs and then outputs.
std::vector<std::pair<std::string, std::string>> Declarations(const Ort::Session& session) {
  std::vector<std::pair<std::string, std::string>> declared;
  Ort::AllocatorWithDefaultOptions allocator;
  for (size_t place = 0; place < session.GetInputCount(); ++place) {
    declared.emplace_back(session.GetInputNameAllocated(place, allocator).get(), Described(session.GetInputTypeInfo(place)));
  }
  for (size_t place = 0; place < session.GetOutputCount(); ++place) {
    declared.emplace_back(session.GetOutputNameAllocated(place, allocator).get(), Described(session.GetOutputTypeInfo(place)));
  }
  return declared;
}

void CheckSignature(const Graph& graph, std::optional<int64_t> max_seq_len, Report& report) {
  const GraphInfo& info = graph.info();
  const auto declared = Declarations(graph.session());
  std::vector<const TensorInfo*> expected;
  for (const auto* tensors : {&info.inputs, &info.outputs}) {
    for (const TensorInfo& tensor : *tensors) expected.push_back(&tensor);
  }
  for (const TensorInfo* tensor : expected) {
    std::vector<std::string> dims;
    for (const Dim& dim : tensor->dims) {
      dims.push_back(dim == Dim("C") ? std::to_string(*max_seq_len) : Shown(dim));
    }
    const std::string wanted = Join(Name(tensor->dtype), " (", Listed(dims), ")");
    const auto found = std::find_if(declared.begin(), declared.end(),
                                    [&](const auto& some) { return some.first == tensor->name; });
    const std::string has = found == declared.end() ? "nothing" : found->second;
    const std::string note = has == wanted ? "" : Join("the graph has ", has, ", the manifest ", wanted);
    report.checks.push_back({"signature", info.file + " " + tensor->name, has == wanted, note});
  }
  for (const auto& some : declared) {
    const bool known = std::any_of(expected.begin(), expected.end(),
                                   [&](const TensorInfo* tensor) { return tensor->name == some.first; });
    if (!known) report.checks.push_back({"signature", info.file + " " + some.first, false, "the manifest lacks it"});
  }
}

}  // namespace

void CheckDeclared(const Bundle& bundle, const GoldenFile& golden, Report& report) {
  CheckStatements(bundle, golden, report);
  CheckTexts(bundle, golden, report);
  CheckWeights(bundle, golden, report);
  CheckTaps(bundle.manifest, golden, report);
  if (!report.ok()) return;
  for (const auto* graph : {bundle.encoder.get(), bundle.model.get(), bundle.step.get()}) {
    if (graph != nullptr) CheckSignature(*graph, bundle.manifest.max_seq_len, report);
  }
}

}  // namespace seqlab
