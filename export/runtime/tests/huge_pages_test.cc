#include "huge_pages.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>

#include <cstdlib>
#include <fstream>
#include <numeric>
#include <string>

namespace seqlab {
namespace {

// Returns how much of this process is in huge pages, in kB; -1 = the kernel does not say.
int64_t InHugePages() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);) {
    if (line.rfind("AnonHugePages:", 0) == 0) return std::stoll(line.substr(14));
  }
  return -1;
}

bool KernelCan() {
  constexpr size_t kHugePage = size_t{2} << 20;
  void* page = std::aligned_alloc(kHugePage, kHugePage);
  std::fill_n(static_cast<char*>(page), kHugePage, 'x');
  const bool done = madvise(page, kHugePage, 25) == 0;
  std::free(page);
  return done;
}

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

TEST(NewMemory, IsInHugePagesAndNothingElseIs) {
  if (!KernelCan()) GTEST_SKIP() << "this kernel has no MADV_COLLAPSE";
  const std::vector<uint32_t> old(3 << 20, 7u);
  const int64_t held = InHugePages();
  const NewMemory memory;
  const std::vector<uint32_t> numbers(6 << 20, 7u);  // 24 MB, up to 2 MB of which at each end are no whole page
  const int64_t unasked = InHugePages();
  memory.PutInHugePages();
  const int64_t found = InHugePages();
  if (held < 0 || unasked > held) GTEST_SKIP() << "this kernel does not say, or does so unasked";
  EXPECT_GE(found - held, 20 << 10);
  EXPECT_LE(found - held, 26 << 10);
}

TEST(PreferHeap, PiecesAreNotMappedOneByOne) {
  PreferHeap();
  const size_t mapped = mallinfo2().hblkhd;
  void* volatile piece = std::malloc(size_t{30} << 20);
  EXPECT_EQ(mallinfo2().hblkhd, mapped);
  std::free(piece);
}

}  // namespace
}  // namespace seqlab
