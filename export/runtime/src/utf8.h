// UTF-8: validation, code points, and decoding that replaces invalid bytes as Python's codecs do.
#ifndef SEQLAB_UTF8_H_
#define SEQLAB_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace seqlab {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// The first piece of some bytes.
struct Utf8Piece {
  enum Kind { kCharacter, kInvalid, kUnfinished } kind;
  size_t size;          // in bytes; if invalid, the longest prefix of a character (Unicode 15, section 3.9)
  uint32_t code_point;  // code point of a character, else 0
};

// Reads the first piece of bytes that are not empty.
Utf8Piece ReadUtf8(std::string_view bytes);

// Throws Refusal with the byte offset of the first piece that is not UTF-8, if there is one.
void CheckUtf8(std::string_view text);

// Decodes bytes as they arrive: invalid ones become U+FFFD, and an unfinished character is held back.
class Utf8Stream {
 public:
  std::string Push(std::string_view bytes);
  std::string Finish();

 private:
  std::string held_;
};

// Splits a text at whitespace, as defined by Python's str.isspace. With `newlines`, each newline is a word too.
std::vector<std::string_view> Words(std::string_view text, bool newlines);

}  // namespace seqlab

#endif  // SEQLAB_UTF8_H_
