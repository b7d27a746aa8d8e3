// The tokenizers of `seqlab_data.tokenizers`, read from the files that they save.
#ifndef SEQLAB_TOKENIZER_H_
#define SEQLAB_TOKENIZER_H_

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chat.h"
#include "seqlab/runtime.h"
#include "utf8.h"

namespace seqlab {

// Ids of tokens that stand for no text; -1 = there is none.
struct SpecialIds {
  int64_t pad = 0, bos = 1, eos = 2;
};

// Text to ids and back. Each token has fixed bytes, so decoding is a table look-up.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  int64_t pad_id() const { return special_.pad; }
  int64_t bos_id() const { return special_.bos; }
  int64_t eos_id() const { return special_.eos; }
  int64_t vocab_size() const { return static_cast<int64_t>(token_bytes_.size()); }

  // Returns the ids of a text, without special tokens. Throws Refusal with the byte offset if it is not UTF-8.
  virtual Ids Encode(std::string_view text) const = 0;

  // Returns true if a text need not be UTF-8.
  virtual bool TakesAnyBytes() const { return false; }

  // Returns the bytes of a token. Throws Refusal if the id is outside the vocabulary.
  const std::string& Bytes(int64_t id) const;

  // Returns true if decoding drops a space at the start of a text.
  virtual bool DropsFirstSpace() const { return false; }

  // Returns what the model expects between the messages of a chat, if it is for chats.
  const std::optional<ChatFormat>& chat() const { return chat_; }
  void SetChat(ChatFormat chat) { chat_ = std::move(chat); }

  // Returns the text of ids: special tokens have none, and bytes that are not UTF-8 become U+FFFD.
  std::string Decode(const Ids& ids) const;

 protected:
  explicit Tokenizer(std::vector<std::string> token_bytes, SpecialIds special = {})
      : token_bytes_(std::move(token_bytes)), special_(special) {}

 private:
  std::vector<std::string> token_bytes_;
  SpecialIds special_;
  std::optional<ChatFormat> chat_;
};

// Decodes one id at a time: the pieces, joined, are the text that `Decode` returns.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  std::string Push(int64_t id);
  std::string Finish();

 private:
  std::string WithoutFirstSpace(std::string text);

  const Tokenizer& tokenizer_;
  Utf8Stream stream_;
  bool begun_ = false;
};

// Makes the tokenizer that tokenizer.json describes; `asset` is the content of tokenizer.model or pretrained.json, if
// it has one.
//
// Throws Refusal if it is damaged, or of a class that the runtime does not have.
std::unique_ptr<Tokenizer> MakeTokenizer(const std::string& description, const std::string& asset);

// Reads a tokenizer from its folder. Throws Refusal as `MakeTokenizer`.
std::unique_ptr<Tokenizer> LoadTokenizer(const std::filesystem::path& folder);

std::unique_ptr<Tokenizer> MakeByteTokenizer();
// Makes a tokenizer with a token for each code point of `alphabet`.
std::unique_ptr<Tokenizer> MakeCharTokenizer(const std::string& alphabet);
std::unique_ptr<Tokenizer> MakeWordTokenizer(const std::vector<std::string>& words, bool newlines);
// Makes a tokenizer from the content of a sentencepiece model.
std::unique_ptr<Tokenizer> MakeSubwordTokenizer(const std::string& model);
// Makes a tokenizer from the content of a `tokenizer.json` of Hugging Face, with at least `vocab_size` tokens.
std::unique_ptr<Tokenizer> MakePretrainedTokenizer(const std::string& content, int64_t vocab_size, SpecialIds special);

}  // namespace seqlab

#endif  // SEQLAB_TOKENIZER_H_
