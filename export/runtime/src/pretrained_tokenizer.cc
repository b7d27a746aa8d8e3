// The byte-level BPE of a `tokenizer.json` (GPT-2, Llama 3; Radford et al. 2019, section 2.2).

#include <algorithm>
#include <array>
#include <set>
#include <unordered_map>

#include "byte_pairs.h"
#include "error.h"
#include "json_fields.h"
#include "text_splitter.h"
#include "tokenizer.h"
#include "utf8.h"

namespace seqlab {
namespace {

constexpr int64_t kLargest = int64_t{1} << 24;

std::string Utf8Of(int code_point) {
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xC0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 0x3F))};
}

// Byte of each of GPT-2's letters: the byte itself if it is printable, else the next letter from U+0100 on.
std::unordered_map<std::string, char> BytesOfLetters() {
  std::unordered_map<std::string, char> bytes;
  int others = 0x100;
  for (int byte = 0; byte < 0x100; ++byte) {
    const bool printable = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    bytes[Utf8Of(printable ? byte : others++)] = static_cast<char>(byte);
  }
  return bytes;
}

std::string BytesOf(const std::string& piece) {
  static const std::unordered_map<std::string, char> letters = BytesOfLetters();
  std::string bytes;
  for (std::string_view left = piece; !left.empty();) {
    const size_t size = ReadUtf8(left).size;
    const auto found = letters.find(std::string(left.substr(0, size)));
    if (found == letters.end()) {
      Refuse("its pretrained.json has the letter \"", left.substr(0, size), "\", which encodes no byte");
    }
    bytes += found->second;
    left.remove_prefix(size);
  }
  return bytes;
}

struct AddedToken {
  int64_t id;
  std::string content;
  bool special, normalized;
};

// Finds added tokens in a text, the longest first at each place.
class AddedTokens {
 public:
  void Add(AddedToken token) {
    if (token.content.empty()) return;
    std::vector<AddedToken>& all = by_byte_[static_cast<uint8_t>(token.content[0])];
    const auto place = std::find_if(
        all.begin(), all.end(), [&](const AddedToken& other) { return other.content.size() < token.content.size(); });
    all.insert(place, std::move(token));
  }

  const AddedToken* At(std::string_view text) const {
    for (const AddedToken& token : by_byte_[static_cast<uint8_t>(text[0])]) {
      if (text.substr(0, token.content.size()) == token.content) return &token;
    }
    return nullptr;
  }

  // Calls `between` with each part of a text without tokens, and `found` with each token. Special ones are text.
  template <typename Between, typename Found>
  void Split(const std::string& text, const Between& between, const Found& found) const {
    size_t done = 0;
    for (size_t place = 0; place < text.size();) {
      const AddedToken* token = At(std::string_view(text).substr(place));
      if (token == nullptr) {
        ++place;
        continue;
      }
      if (!token->special) {
        if (place > done) between(text.substr(done, place - done));
        found(*token);
        done = place + token->content.size();
      }
      place += token->content.size();
    }
    if (done < text.size()) between(text.substr(done));
  }

 private:
  std::array<std::vector<AddedToken>, 256> by_byte_;
};

class PretrainedTokenizer : public Tokenizer {
 public:
  PretrainedTokenizer(std::vector<std::string> token_bytes, SpecialIds special, const std::vector<AddedToken>& added,
                      Normalizer normalizer, std::unique_ptr<TextSplitter> splitter, BytePairs pairs)
      : Tokenizer(std::move(token_bytes), special),
        normalizer_(std::move(normalizer)),
        splitter_(std::move(splitter)),
        pairs_(std::move(pairs)) {
    for (AddedToken token : added) {
      if (token.normalized) token.content = normalizer_(token.content);
      (token.normalized ? normalized_ : raw_).Add(token);
    }
  }

  Ids Encode(std::string_view text) const override {
    CheckUtf8(text);
    Ids ids;
    const auto found = [&](const AddedToken& token) { ids.push_back(token.id); };
    const auto words = [&](const std::string& part) {
      for (const std::string& word : (*splitter_)(part)) pairs_.Encode(word, ids);
    };
    raw_.Split(
        std::string(text), [&](const std::string& part) { normalized_.Split(normalizer_(part), words, found); }, found);
    return ids;
  }

 private:
  Normalizer normalizer_;
  std::unique_ptr<TextSplitter> splitter_;
  BytePairs pairs_;
  AddedTokens raw_, normalized_;  // found in the text as it is, and in the normalised text
};

AddedToken ReadAdded(const Field& field) {
  AddedToken token{field["id"].Int(0), field["content"].String(), field["special"].Bool(), field["normalized"].Bool()};
  const bool strips = field["lstrip"].Bool() || field["rstrip"].Bool() || field["single_word"].Bool();
  if (strips && !token.special) {
    Refuse("the runtime does not have the options of the added token \"", token.content.substr(0, 60), "\"");
  }
  return token;
}

std::vector<std::pair<std::string, std::string>> ReadMerges(const Field& field) {
  std::vector<std::pair<std::string, std::string>> merges;
  for (const Field& merge : field.Items()) {
    if (!merge.IsString()) {
      const std::vector<std::string> both = merge.Strings();
      if (both.size() != 2) Refuse("a merge of its pretrained.json has ", both.size(), " tokens, not 2");
      merges.emplace_back(BytesOf(both[0]), BytesOf(both[1]));
      continue;
    }
    const std::string text = merge.String();
    const size_t space = text.find(' ');
    if (space == std::string::npos)
      Refuse("a merge of its pretrained.json is \"", text.substr(0, 60), "\", not a pair");
    merges.emplace_back(BytesOf(text.substr(0, space)), BytesOf(text.substr(space + 1)));
  }
  return merges;
}

void MustBeNull(const Field& object, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (!object.Has(name)) continue;
    const Field field = object[name];
    const bool empty = field.IsNull() || (field.IsString() && field.String().empty());
    if (!empty) Refuse("the runtime does not have the option ", name, " of this tokenizer");
  }
}

}  // namespace

std::unique_ptr<Tokenizer> MakePretrainedTokenizer(const std::string& content, int64_t vocab_size, SpecialIds special) {
  const Document document(content, "pretrained.json");
  const Field root = document.Root("pretrained.json"), model = root["model"];
  const bool is_bpe = model["type"].String() == "BPE";
  auto splitter =
      is_bpe && !root["pre_tokenizer"].IsNull() ? std::make_unique<TextSplitter>(root["pre_tokenizer"]) : nullptr;
  if (splitter == nullptr || !splitter->IsByteLevel()) {
    Refuse("its pretrained.json is not a byte-level BPE of Hugging Face's tokenizers");
  }
  MustBeNull(root, {"truncation", "padding"});
  MustBeNull(model, {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"});
  std::vector<AddedToken> added;
  for (const Field& token : root["added_tokens"].Items()) added.push_back(ReadAdded(token));
  std::vector<std::string> token_bytes;
  const auto put = [&](int64_t id, std::string bytes) {
    if (id < 0 || id >= kLargest) Refuse("an id in its pretrained.json is not from 0 to ", kLargest - 1);
    if (static_cast<size_t>(id) >= token_bytes.size()) token_bytes.resize(static_cast<size_t>(id) + 1);
    token_bytes[static_cast<size_t>(id)] = std::move(bytes);
  };
  if (vocab_size > 0) put(vocab_size - 1, "");
  std::set<int64_t> special_ids;
  for (const AddedToken& token : added) {
    if (token.special) special_ids.insert(token.id);
  }
  std::unordered_map<std::string, int64_t> ids;
  for (const auto& [piece, id] : model["vocab"].Members()) {
    const int64_t number = id.Int(0);
    // A special token may have letters that encode no byte.
    const std::string bytes = special_ids.count(number) > 0 ? piece : BytesOf(piece);
    put(number, bytes);
    ids[bytes] = number;
  }
  for (const AddedToken& token : added) put(token.id, token.special ? "" : token.content);
  const bool whole_first = model.Has("ignore_merges") && model["ignore_merges"].Bool();
  return std::make_unique<PretrainedTokenizer>(std::move(token_bytes), special, added, Normalizer(root["normalizer"]),
                                               std::move(splitter),
                                               BytePairs(std::move(ids), ReadMerges(model["merges"]), whole_first));
}

}  // namespace seqlab
