// Weights in huge pages: each token reads them all, and the processor looks up where each page is.
#ifndef SEQLAB_HUGE_PAGES_H_
#define SEQLAB_HUGE_PAGES_H_

#include <sys/mman.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace seqlab {

// The memory that the process comes to hold while this object lives.
class NewMemory {
 public:
  NewMemory() : before_(Held()) {}

  // Asks the kernel (Linux 6.1 or newer) to put it in huge pages; where it does not, nothing is changed.
  void PutInHugePages() const;

 private:
  using Range = std::pair<uintptr_t, uintptr_t>;
  // What was written by this process alone, by addresses.
  static std::vector<Range> Held();

  std::vector<Range> before_;
};

inline void NewMemory::PutInHugePages() const {
  constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, which older headers do not name
  for (auto [start, end] : Held()) {
    // Where it is an old mapping that grew, what is new.
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
