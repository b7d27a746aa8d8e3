#include "utf8.h"

#include <algorithm>

#include "error.h"

namespace seqlab {
namespace {

bool IsSpace(uint32_t c) {
  return (0x09 <= c && c <= 0x0D) || (0x1C <= c && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (0x2000 <= c && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

}  // namespace

Utf8Piece ReadUtf8(std::string_view bytes) {
  const auto at = [&](size_t place) { return static_cast<uint8_t>(bytes[place]); };
  const uint8_t lead = at(0);
  if (lead < 0x80) return {Utf8Piece::kCharacter, 1, lead};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8Piece::kInvalid, 1, 0};
  const size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and code points above U+10FFFF.
  const uint8_t first = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t last = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  uint32_t code_point = lead & (0xFF >> (size + 1));
  for (size_t place = 1; place < size; ++place) {
    if (place == bytes.size()) return {Utf8Piece::kUnfinished, place, 0};
    const uint8_t byte = at(place);
    if (byte < (place == 1 ? first : 0x80) || byte > (place == 1 ? last : 0xBF)) {
      return {Utf8Piece::kInvalid, place, 0};
    }
    code_point = code_point << 6 | (byte & 0x3F);
  }
  return {Utf8Piece::kCharacter, size, code_point};
}

void CheckUtf8(std::string_view text) {
  for (size_t place = 0; place < text.size();) {
    const Utf8Piece piece = ReadUtf8(text.substr(place));
    if (piece.kind != Utf8Piece::kCharacter) {
      Refuse("the text is not UTF-8 at byte ", place, "; only a byte tokenizer takes any bytes");
    }
    place += piece.size;
  }
}

std::string Utf8Stream::Push(std::string_view bytes) {
  held_ += bytes;
  std::string text;
  size_t place = 0;
  while (place < held_.size()) {
    const std::string_view rest = std::string_view(held_).substr(place);
    const Utf8Piece piece = ReadUtf8(rest);
    if (piece.kind == Utf8Piece::kUnfinished) break;
    text += piece.kind == Utf8Piece::kCharacter ? rest.substr(0, piece.size) : kReplacement;
    place += piece.size;
  }
  held_.erase(0, place);
  return text;
}

std::string Utf8Stream::Finish() {
  std::string text(held_.empty() ? std::string_view() : kReplacement);
  held_.clear();
  return text;
}

std::vector<std::string_view> Words(std::string_view text, bool newlines) {
  std::vector<std::string_view> words;
  size_t start = 0;
  for (size_t place = 0; place < text.size();) {
    const Utf8Piece piece = ReadUtf8(text.substr(place));
    if (piece.kind == Utf8Piece::kCharacter && IsSpace(piece.code_point)) {
      if (place > start) words.push_back(text.substr(start, place - start));
      if (newlines && text[place] == '\n') words.push_back(text.substr(place, 1));
      start = place + piece.size;
    }
    place += piece.size;
  }
  if (start < text.size()) words.push_back(text.substr(start));
  return words;
}

}  // namespace seqlab
