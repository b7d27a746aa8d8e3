// Tokenizers of bytes, of characters and of words.

#include <algorithm>
#include <cstdint>
#include <unordered_map>

#include "error.h"
#include "tokenizer.h"

namespace seqlab {
namespace {

constexpr int64_t kUnknown = 3;

// Byte b is token b + 3.
class ByteTokenizer : public Tokenizer {
 public:
  ByteTokenizer() : Tokenizer(AllBytes()) {}

  Ids Encode(std::string_view text) const override {
    Ids ids;
    ids.reserve(text.size());
    for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte) + 3);
    return ids;
  }

  bool TakesAnyBytes() const override { return true; }

 private:
  static std::vector<std::string> AllBytes() {
    std::vector<std::string> bytes(3);
    for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
    return bytes;
  }
};

// Known strings are the tokens from 4 on; any other string is token 3.
class KnownStrings : public Tokenizer {
 protected:
  KnownStrings(const std::vector<std::string>& known, std::vector<std::string> token_bytes)
      : Tokenizer(std::move(token_bytes)) {
    for (const std::string& string : known) {
      if (!ids_.emplace(string, kUnknown + 1 + static_cast<int64_t>(ids_.size())).second) {
        Refuse("the tokenizer has \"", string, "\" twice");
      }
    }
  }

  int64_t Id(std::string_view string) const {
    const auto found = ids_.find(std::string(string));
    return found == ids_.end() ? kUnknown : found->second;
  }

 private:
  std::unordered_map<std::string, int64_t> ids_;
};

std::vector<std::string> Characters(std::string_view text) {
  CheckUtf8(text);
  std::vector<std::string> characters;
  for (size_t place = 0; place < text.size(); place += characters.back().size()) {
    characters.emplace_back(text.substr(place, ReadUtf8(text.substr(place)).size));
  }
  return characters;
}

class CharTokenizer : public KnownStrings {
 public:
  explicit CharTokenizer(const std::vector<std::string>& alphabet) : KnownStrings(alphabet, BytesOf(alphabet)) {}

  Ids Encode(std::string_view text) const override {
    Ids ids;
    for (const std::string& character : Characters(text)) ids.push_back(Id(character));
    return ids;
  }

 private:
  static std::vector<std::string> BytesOf(const std::vector<std::string>& alphabet) {
    std::vector<std::string> bytes = {"", "", "", std::string(kReplacement)};
    bytes.insert(bytes.end(), alphabet.begin(), alphabet.end());
    return bytes;
  }
};

// A token's bytes are a space and its word; with `newlines` a newline is a word too, whose bytes are itself.
class WordTokenizer : public KnownStrings {
 public:
  WordTokenizer(const std::vector<std::string>& words, bool newlines)
      : KnownStrings(words, BytesOf(words)), newlines_(newlines) {}

  bool DropsFirstSpace() const override { return true; }

  Ids Encode(std::string_view text) const override {
    CheckUtf8(text);
    Ids ids;
    for (const std::string_view word : Words(text, newlines_)) ids.push_back(Id(word));
    return ids;
  }

 private:
  static std::vector<std::string> BytesOf(const std::vector<std::string>& words) {
    std::vector<std::string> bytes = {"", "", "", " <unk>"};
    for (const std::string& word : words) {
      CheckUtf8(word);
      bytes.push_back(word == "\n" ? word : " " + word);
    }
    return bytes;
  }

  bool newlines_;
};

}  // namespace

std::unique_ptr<Tokenizer> MakeByteTokenizer() { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<Tokenizer> MakeCharTokenizer(const std::string& alphabet) {
  return std::make_unique<CharTokenizer>(Characters(alphabet));
}

std::unique_ptr<Tokenizer> MakeWordTokenizer(const std::vector<std::string>& words, bool newlines) {
  return std::make_unique<WordTokenizer>(words, newlines);
}

}  // namespace seqlab
