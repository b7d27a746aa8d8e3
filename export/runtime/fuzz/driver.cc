// fuzz CORPUS CASES: runs the fuzz target on this number of mutations of a corpus's files, always the same ones. For
// compilers without libFuzzer.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "files.h"
#include "sampling.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

// Random numbers that the number of a case determines.
class Dice {
 public:
  explicit Dice(uint32_t number) : number_(number) {}
  size_t Below(size_t limit) {
    return limit == 0 ? 0 : seqlab::Philox4x32({number_, draws_++, 0, 0}, {20, 26})[0] % limit;
  }

 private:
  uint32_t number_, draws_ = 0;
};

const std::vector<std::string> kTelling = {"0",
                                           "-1",
                                           "1e999",
                                           "9999999999999999999",
                                           "null",
                                           "true",
                                           "\"\"",
                                           "[]",
                                           "{}",
                                           "\"..\"",
                                           "\"B\"",
                                           ",",
                                           ":",
                                           "\xC3",
                                           "\xED\xA0\x80",
                                           "\xE2\x96\x81",
                                           "\n",
                                           std::string(1, '\0')};

std::string Mutated(std::string content, const std::vector<std::string>& seeds, Dice& dice) {
  for (size_t times = 1 + dice.Below(4); times > 0; --times) {
    // The first byte, which says what the case is, stays.
    const size_t place = std::min(content.size(), 1 + dice.Below(content.size()));
    const size_t length = std::min(content.size() - place, 1 + dice.Below(8));
    switch (dice.Below(6)) {
      case 0:
        if (place < content.size()) content[place] = static_cast<char>(content[place] ^ (1 << dice.Below(8)));
        break;
      case 1:
        content.erase(place, length);
        break;
      case 2:
        content.insert(place, content.substr(place, length));
        break;
      case 3:
        content.replace(place, length, kTelling[dice.Below(kTelling.size())]);
        break;
      case 4:
        content.insert(place, 1, static_cast<char>(dice.Below(256)));
        break;
      default: {
        const std::string& other = seeds[dice.Below(seeds.size())];
        content.replace(place, length, other.substr(dice.Below(other.size()), 1 + dice.Below(32)));
      }
    }
  }
  return content;
}

void Run(const std::string& content) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(content.data()), content.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<std::string> seeds;
  for (const auto& file : files) seeds.push_back(seqlab::ReadFile(file));
  if (seeds.empty()) return 2;
  for (const std::string& seed : seeds) Run(seed);
  const auto cases = static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 10));
  for (uint32_t number = 0; number < cases; ++number) {
    Dice dice(number);
    Run(Mutated(seeds[number % seeds.size()], seeds, dice));
  }
  std::cout << cases << " cases\n";
}
