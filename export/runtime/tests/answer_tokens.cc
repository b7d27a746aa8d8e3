// answer_tokens FOLDER: encodes and decodes texts with the tokenizer in a folder, to compare with Python.
//
// Each line of stdin is a text in hexadecimal digits. Each line of stdout is its ids, "|" and their text in hexadecimal
// digits; or "refused: " and the message.

#include <iostream>
#include <string>

#include "error.h"
#include "files.h"
#include "tokenizer.h"

namespace {

std::string FromHex(const std::string& digits) {
  std::string bytes;
  for (size_t place = 0; place + 1 < digits.size(); place += 2) {
    bytes += static_cast<char>(std::stoi(digits.substr(place, 2), nullptr, 16));
  }
  return bytes;
}

void Answer(const seqlab::Tokenizer& tokenizer, const std::string& text) {
  const seqlab::Ids ids = tokenizer.Encode(text);
  for (const int64_t id : ids) std::cout << id << " ";
  std::cout << "|" << seqlab::Hex(tokenizer.Decode(ids)) << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  if (argc != 2) return 2;
  try {
    const auto tokenizer = seqlab::LoadTokenizer(argv[1]);
    for (std::string line; std::getline(std::cin, line);) {
      try {
        Answer(*tokenizer, FromHex(line));
      } catch (const seqlab::Refusal& refusal) {
        std::cout << "refused: " << refusal.what() << "\n";
      }
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
