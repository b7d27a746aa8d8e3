// Weights in huge pages: each token reads them all, and the processor looks up where each page is.
#ifndef SEQLAB_HUGE_PAGES_H_
#define SEQLAB_HUGE_PAGES_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace seqlab {

// The memory that the process comes to hold while this object lives.
class NewMemory {
 public:
  NewMemory();

  // Asks the kernel (Linux 6.1 or newer) to put it in huge pages; where it does not, nothing is changed.
  void PutInHugePages() const;

 private:
  using Range = std::pair<uintptr_t, uintptr_t>;
  static std::vector<Range> Held();

  std::vector<Range> before_;
};

}  // namespace seqlab

#endif  // SEQLAB_HUGE_PAGES_H_
