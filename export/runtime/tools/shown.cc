#include "shown.h"

#include <unistd.h>

#include <iostream>

#include "utf8.h"

namespace seqlab::tools {
namespace {

std::ostream as_written(nullptr);

bool Steers(uint32_t c) {
  const bool control = c < 0x20 || (0x7F <= c && c <= 0x9F);
  return (control && c != '\n' && c != '\t') || (0x202A <= c && c <= 0x202E) || (0x2066 <= c && c <= 0x2069);
}

std::string Escaped(uint32_t c) {
  const auto digit = [c](int place) { return "0123456789abcdef"[c >> 4 * place & 15]; };
  if (c <= 0xFF) return {'\\', 'x', digit(1), digit(0)};
  return {'\\', 'u', digit(3), digit(2), digit(1), digit(0)};
}

// Returns the size of a text without an unfinished character at its end.
size_t Whole(std::string_view text) {
  size_t place = 0;
  while (place < text.size()) {
    const Utf8Piece piece = ReadUtf8(text.substr(place));
    if (piece.kind == Utf8Piece::kUnfinished) break;
    place += piece.size;
  }
  return place;
}

}  // namespace

std::string Shown(std::string_view text) {
  std::string shown;
  for (size_t place = 0; place < text.size();) {
    const Utf8Piece piece = ReadUtf8(text.substr(place));
    const std::string_view bytes = text.substr(place, piece.size);
    if (piece.kind != Utf8Piece::kCharacter) {
      for (const char byte : bytes) shown += Escaped(static_cast<unsigned char>(byte));
    } else if (Steers(piece.code_point)) {
      shown += Escaped(piece.code_point);
    } else {
      shown += bytes;
    }
    place += piece.size;
  }
  return shown;
}

ShownBuffer::int_type ShownBuffer::overflow(int_type character) {
  if (traits_type::eq_int_type(character, traits_type::eof())) return traits_type::not_eof(character);
  const char byte = traits_type::to_char_type(character);
  return xsputn(&byte, 1) == 1 ? character : traits_type::eof();
}

std::streamsize ShownBuffer::xsputn(const char* text, std::streamsize size) {
  held_.append(text, static_cast<size_t>(size));
  const size_t whole = Whole(held_);
  const bool written = Write(std::string_view(held_).substr(0, whole));
  held_.erase(0, whole);
  return written ? size : 0;
}

int ShownBuffer::sync() {
  const bool written = Write(held_);
  held_.clear();
  return written && target_->pubsync() == 0 ? 0 : -1;
}

bool ShownBuffer::Write(std::string_view text) const {
  const std::string shown = Shown(text);
  const auto size = static_cast<std::streamsize>(shown.size());
  return target_->sputn(shown.data(), size) == size;
}

ShownForPeople::ShownForPeople()
    : out_(std::cout.rdbuf()),
      err_(std::cerr.rdbuf()),
      plain_out_(std::cout.rdbuf(&out_)),
      plain_err_(std::cerr.rdbuf(&err_)) {
  as_written.rdbuf(plain_out_);
}

ShownForPeople::~ShownForPeople() {
  std::cout.flush();
  std::cerr.flush();
  std::cout.rdbuf(plain_out_);
  std::cerr.rdbuf(plain_err_);
}

std::ostream& ForPrograms() { return isatty(STDOUT_FILENO) != 0 ? std::cout : as_written; }

}  // namespace seqlab::tools
