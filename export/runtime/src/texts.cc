#include "texts.h"

#include <algorithm>

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

bool Holds(const Ids& ids, const NpyArray& array) {
  return std::equal(ids.begin(), ids.end(), array.values.begin(), array.values.end(),
                    [](int64_t id, double value) { return static_cast<double>(id) == value; });
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

std::string TextDifference(const std::filesystem::path& folder, const std::string& place, const GoldenFile& golden,
                           bool writes) {
  const std::string name = golden.At(place + "/class").text;
  const Document document(ReadFile(folder / place / "tokenizer.json"), "tokenizer.json");
  const std::string found = document.Root("tokenizer.json")["class"].String();
  if (found != name) return "it is a " + found + ", and was a " + name;
  if (name == "PretrainedTokenizer") return "";
  const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer(folder / place);
  const std::string other = "it gives another ", than = " than at export";
  if (DigestOf(*tokenizer) != HexOf(BytesOf(golden.At(place + "/sha256", {32})))) return other + "sha256" + than;
  if (!Holds({tokenizer->pad_id(), tokenizer->bos_id(), tokenizer->eos_id()}, golden.At(place + "/special", {3}))) {
    return other + "special" + than;
  }
  for (int number = 0; number < 4; ++number) {
    const std::string string = Join(place, "/string_", number);
    if (!golden.Has(string)) continue;
    const Ids ids = tokenizer->Encode(BytesOf(golden.At(string)));
    if (!Holds(ids, golden.At(Join(place, "/ids_", number)))) return Join(other, "ids_", number, than);
    if (tokenizer->Decode(ids) != BytesOf(golden.At(Join(place, "/text_", number)))) return Join(other, "text_", number, than);
  }
  return writes ? GreedyDifference(*tokenizer, golden) : "";
}

}  // namespace seqlab
