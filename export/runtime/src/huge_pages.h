// Huge pages for weights: each token reads all of them, and the processor translates the address of each page.
#ifndef SEQLAB_HUGE_PAGES_H_
#define SEQLAB_HUGE_PAGES_H_

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace seqlab {

// The memory that the process acquires during the lifetime of this object.
class NewMemory {
 public:
  NewMemory() : before_(Held()) {}

  // Asks the kernel (Linux 6.1 or newer) to move the memory to huge pages. If it does not, nothing changes.
  void PutInHugePages() const;

 private:
  using Range = std::pair<uintptr_t, uintptr_t>;
  // Returns the private anonymous memory of this process, by address.
  static std::vector<Range> Held();

  std::vector<Range> before_;
};

// Has the C library take pieces of up to 32 MB from the heap, which lies in huge pages from end to end, and not map
// each by itself: glibc does so up to the size of the largest piece that it has mapped and freed.
inline void PreferHeap() {
  constexpr size_t kMost = (size_t{32} << 20) - (size_t{64} << 10);
  void* volatile piece = std::malloc(kMost);  // volatile: the compiler would leave out both calls
  std::free(piece);
}

inline void NewMemory::PutInHugePages() const {
  constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, which older headers do not name
  for (auto [start, end] : Held()) {
    // Only the new part of a mapping that grew is taken.
    for (const auto& [old_start, old_end] : before_) {
      if (old_start <= start && start < old_end) start = old_end;
      if (old_start < end && end <= old_end) end = old_start;
    }
    for (uintptr_t page = (start + kHugePage - 1) / kHugePage * kHugePage; page + kHugePage <= end; page += kHugePage) {
      madvise(reinterpret_cast<void*>(page), kHugePage, kCollapse);
    }
  }
}

inline std::vector<NewMemory::Range> NewMemory::Held() {
  std::vector<Range> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    fields.imbue(std::locale::classic());
    Range range;
    char dash = 0;
    std::string access, offset, device, inode;
    fields >> std::hex >> range.first >> dash >> range.second >> access >> offset >> device >> inode;
    if (access == "rw-p" && inode == "0") found.push_back(range);
  }
  return found;
}

}  // namespace seqlab

#endif  // SEQLAB_HUGE_PAGES_H_
