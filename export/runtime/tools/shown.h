// Lines for people: a control character in them is shown as \x1b, and steers no terminal.
#ifndef SEQLAB_TOOLS_SHOWN_H_
#define SEQLAB_TOOLS_SHOWN_H_

#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>

namespace seqlab::tools {

// Shows the controls C0, DEL and C1, what overrides the direction of writing, and bytes that are not UTF-8. A newline and a
// tab are layout. `shown` of platform/seqlab/cli/terminal.py shows the same.
std::string Shown(std::string_view text);

// Hands what is written to another buffer as Shown has it.
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
  std::string held_;  // a character of which the end is to come
};

// While it lives std::cout and std::cerr show control characters.
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

// Standard output for texts that another program may read: a pipe and a file get them as they are.
std::ostream& ForPrograms();

}  // namespace seqlab::tools

#endif  // SEQLAB_TOOLS_SHOWN_H_
