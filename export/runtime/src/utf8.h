// UTF-8: where it is invalid, its code points, and decoding that replaces what is invalid, as Python's codecs do.
#ifndef SEQLAB_UTF8_H_
#define SEQLAB_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace seqlab {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// What stands at the start of some bytes, which are not empty.
struct Utf8Piece {
  enum Kind { kCharacter, kInvalid, kUnfinished } kind;
  size_t size;          // in bytes; of what is invalid, the longest beginning of a character (Unicode 15, section 3.9)
  uint32_t code_point;  // of a character
};

Utf8Piece ReadUtf8(std::string_view bytes);

// Throws Refusal with the byte offset of the first that is not UTF-8.
void CheckUtf8(std::string_view text);

// Decodes bytes as they come: what is invalid becomes U+FFFD, an unfinished character is held back.
class Utf8Stream {
 public:
  std::string Push(std::string_view bytes);
  std::string Finish();

 private:
  std::string held_;
};

// What stands between whitespace, which is what Python's str.isspace says; with `newlines` each newline is a word too.
std::vector<std::string_view> Words(std::string_view text, bool newlines);

}  // namespace seqlab

#endif  // SEQLAB_UTF8_H_
