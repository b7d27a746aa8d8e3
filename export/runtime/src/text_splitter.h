// Normalisation and splitting of a text before byte-pair encoding, as a `tokenizer.json` of Hugging Face describes
// them.
#ifndef SEQLAB_TEXT_SPLITTER_H_
#define SEQLAB_TEXT_SPLITTER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "json_fields.h"

namespace seqlab {

// A Unicode normalisation: NFC, NFD, NFKC, NFKD, or several after each other.
class Normalizer {
 public:
  // Reads `normalizer`. Throws Refusal if it is another one.
  explicit Normalizer(const Field& described);

  std::string operator()(std::string text) const;

 private:
  std::vector<int> forms_;  // options of utf8proc
};

// A step that splits at the matches of a pattern, and may begin each piece with a space.
struct SplitStep;

// The steps of a `pre_tokenizer`: ByteLevel, Split, Digits, or several after each other.
class TextSplitter {
 public:
  // Throws Refusal if it has another step or pattern.
  explicit TextSplitter(const Field& described);
  ~TextSplitter();

  // Returns the words of a text. Throws Refusal if a pattern takes too long.
  std::vector<std::string> operator()(const std::string& text) const;

  // True if one of the steps is ByteLevel.
  bool IsByteLevel() const { return is_byte_level_; }

 private:
  void Add(const Field& step);

  std::vector<std::unique_ptr<SplitStep>> steps_;
  bool is_byte_level_ = false;
};

}  // namespace seqlab

#endif  // SEQLAB_TEXT_SPLITTER_H_
