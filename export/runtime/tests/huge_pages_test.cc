#include "huge_pages.h"

#include <gtest/gtest.h>

#include <numeric>

namespace seqlab {
namespace {

TEST(NewMemory, KeepsWhatIsWritten) {
  std::vector<uint32_t> old(3 << 20);
  std::iota(old.begin(), old.end(), 7u);
  const std::vector<uint32_t> before = old;
  const NewMemory memory;
  std::vector<uint32_t> numbers = old;
  memory.PutInHugePages();
  EXPECT_EQ(numbers, before);
  EXPECT_EQ(old, before);
  numbers[5] = 0;
  memory.PutInHugePages();
  EXPECT_EQ(numbers[5], 0u) << "and stays what can be written";
}

}  // namespace
}  // namespace seqlab
