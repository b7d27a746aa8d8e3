// Text for people: a control character is shown as \x1b and cannot control the terminal.
#ifndef SEQLAB_TOOLS_SHOWN_H_
#define SEQLAB_TOOLS_SHOWN_H_

#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>

namespace seqlab::tools {

// Escapes control characters (C0, DEL and C1), overrides of the writing direction, and bytes that are not UTF-8.
// Newlines and tabs stay. `shown` of platform/seqlab/cli/terminal.py escapes the same.
std::string Shown(std::string_view text);

// A buffer that writes to another one what `Shown` makes of the text.
class ShownBuffer : public std::streambuf {
 public:
  explicit ShownBuffer(std::streambuf* target) : target_(target) {}

 protected:
  int_type overflow(int_type character) override;
  std::streamsize xsputn(const char* text, std::streamsize size) override;
  int sync() override;

 private:
  bool Write(std::string_view text) const;

  std::streambuf* const target_;
  std::string held_;  // the beginning of an unfinished character
};

// Makes std::cout and std::cerr escape control characters during its lifetime.
class ShownForPeople {
 public:
  ShownForPeople();
  ~ShownForPeople();
  ShownForPeople(const ShownForPeople&) = delete;
  ShownForPeople& operator=(const ShownForPeople&) = delete;

 private:
  ShownBuffer out_, err_;
  std::streambuf *const plain_out_, *const plain_err_;
};

// Returns standard output for text that another program may read: a pipe or a file gets it unescaped.
std::ostream& ForPrograms();

}  // namespace seqlab::tools

#endif  // SEQLAB_TOOLS_SHOWN_H_
