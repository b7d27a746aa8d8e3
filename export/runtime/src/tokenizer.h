// Tokenizers: those of `seqlab_data.tokenizers`, from the files that they save.
#ifndef SEQLAB_TOKENIZER_H_
#define SEQLAB_TOKENIZER_H_

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "seqlab/runtime.h"
#include "utf8.h"

namespace seqlab {

// Every token stands for fixed bytes, so decoding is a table look-up.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  int64_t pad_id() const { return 0; }
  int64_t bos_id() const { return 1; }
  int64_t eos_id() const { return 2; }
  int64_t vocab_size() const { return static_cast<int64_t>(token_bytes_.size()); }

  // The ids of a text, without special tokens. Throws Refusal with the byte offset where it is not UTF-8.
  virtual Ids Encode(std::string_view text) const = 0;

  // Whether a text need not be UTF-8.
  virtual bool TakesAnyBytes() const { return false; }

  // Throws Refusal where an id is outside the vocabulary.
  const std::string& Bytes(int64_t id) const;

  // Whether decoding takes away a space at the very beginning.
  virtual bool DropsFirstSpace() const { return false; }

  // Special tokens vanish; bytes that are not UTF-8 show as U+FFFD.
  std::string Decode(const Ids& ids) const;

 protected:
  explicit Tokenizer(std::vector<std::string> token_bytes) : token_bytes_(std::move(token_bytes)) {}

 private:
  std::vector<std::string> token_bytes_;
};

// Decodes one id at a time: what it returns, joined, is what `Decode` returns.
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

// The tokenizer that tokenizer.json describes; `asset` is tokenizer.model where it names one.
//
// Throws Refusal where it is damaged, or of a class that the runtime does not have.
std::unique_ptr<Tokenizer> MakeTokenizer(const std::string& description, const std::string& asset);

// Reads a tokenizer's folder.
std::unique_ptr<Tokenizer> LoadTokenizer(const std::filesystem::path& folder);

std::unique_ptr<Tokenizer> MakeByteTokenizer();
// One token a code point of `alphabet`.
std::unique_ptr<Tokenizer> MakeCharTokenizer(const std::string& alphabet);
std::unique_ptr<Tokenizer> MakeWordTokenizer(const std::vector<std::string>& words, bool newlines);
// Of a sentencepiece model.
std::unique_ptr<Tokenizer> MakeSubwordTokenizer(const std::string& model);

}  // namespace seqlab

#endif  // SEQLAB_TOKENIZER_H_
