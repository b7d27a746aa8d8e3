#include "texts.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "error.h"
#include "files.h"
#include "json_fields.h"

namespace seqlab {
namespace {

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

// What is encoded: tokens from all over the vocabulary, and strings that not every tokenizer has tokens for.
std::vector<std::string> StringsFor(const Tokenizer& tokenizer) {
  constexpr int64_t kMostIds = 512;
  const int64_t size = tokenizer.vocab_size();
  Ids ids;
  for (int64_t id = 0; id < size; id += std::max<int64_t>(size / kMostIds, 1)) ids.push_back(id);
  return {tokenizer.Decode(ids), u8"The cat sat, 12.5; na\u00efve \u00c6on.\n\t\u6771\u4eac \U0001F642", "the the  THE", "a b c d e"};
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
  Ids ids = tokenizer.Encode(BytesOf(golden.At("greedy/prompt_text")));
  if (ids.empty()) ids = {tokenizer.bos_id()};
  ids.resize(std::min(ids.size(), prompt.values.size()));
  if (!Holds(ids, prompt)) return "the prompt has other ids than at export";
  const NpyArray& tokens = golden.At("greedy/tokens", {kAny, kAny});
  const Ids written(tokens.values.begin(), tokens.values.begin() + tokens.dims[1]);
  return tokenizer.Decode(written) == BytesOf(golden.At("greedy/text")) ? "" : "the greedy text is another one";
}

}  // namespace

std::string BytesOf(const NpyArray& array) {
  std::string bytes;
  for (const double value : array.values) bytes += static_cast<char>(static_cast<unsigned char>(value));
  return bytes;
}

std::string HexOf(const std::string& bytes) {
  std::string digits;
  for (const char byte : bytes) {
    digits += "0123456789abcdef"[static_cast<unsigned char>(byte) >> 4];
    digits += "0123456789abcdef"[byte & 15];
  }
  return digits;
}

std::string TextDifference(const Model::Impl& bundle, const std::string& place, const GoldenFile& golden) {
  const std::filesystem::path folder = bundle.folder / place;
  const std::string name = golden.At(place + "/class").text;
  const Document document(ReadFile(folder / "tokenizer.json"), "tokenizer.json");
  const std::string found = document.Root("tokenizer.json")["class"].String();
  if (found != name) return "it is a " + found + ", and was a " + name;
  if (DigestOf(bundle.manifest.files, place) != HexOf(BytesOf(golden.At(place + "/files", {32})))) {
    return "its files are others than at export";
  }
  if (name == "PretrainedTokenizer") return "";
  const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer(folder);
  const std::string other = "it gives another ", than = " than at export";
  if (DigestOf(*tokenizer) != HexOf(BytesOf(golden.At(place + "/sha256", {32})))) return other + "sha256" + than;
  if (!Holds({tokenizer->pad_id(), tokenizer->bos_id(), tokenizer->eos_id()}, golden.At(place + "/special", {3}))) {
    return other + "special" + than;
  }
  const std::vector<std::string> strings = StringsFor(*tokenizer);
  for (size_t number = 0; number < strings.size(); ++number) {
    const std::string string = Join(place, "/string_", number);
    const std::optional<Ids> ids = Encoded(*tokenizer, strings[number]);
    if (ids.has_value() != golden.Has(string)) return Join(other, "string_", number, than);
    if (!ids) continue;
    if (strings[number] != BytesOf(golden.At(string))) return Join(other, "string_", number, than);
    if (!Holds(*ids, golden.At(Join(place, "/ids_", number)))) return Join(other, "ids_", number, than);
    if (tokenizer->Decode(*ids) != BytesOf(golden.At(Join(place, "/text_", number)))) return Join(other, "text_", number, than);
  }
  const bool writes = bundle.model != nullptr && place == bundle.manifest.tokenizer;
  return writes ? GreedyDifference(*tokenizer, golden) : "";
}

}  // namespace seqlab
