#include <cmath>

#include "sampling.h"

// glibc has a vectorised exp (libmvec), which GCC calls if the function is declared so. The clone is chosen before
// ThreadSanitizer has started, which then crashes.
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__)
extern "C" __attribute__((simd("notinbranch"))) double exp(double) noexcept;
#define SEQLAB_EACH_PROCESSOR __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define SEQLAB_EACH_PROCESSOR
#endif

namespace seqlab {
namespace {

template <typename Number>
inline __attribute__((always_inline)) double Sum(const Number* logits, int64_t count, double largest) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t place = 0; place < count; ++place) sum += exp(logits[place] - largest);
  return sum;
}

}  // namespace

SEQLAB_EACH_PROCESSOR double SumOfExp(const float* logits, int64_t count, double largest) {
  return Sum(logits, count, largest);
}

SEQLAB_EACH_PROCESSOR double SumOfExp(const double* logits, int64_t count, double largest) {
  return Sum(logits, count, largest);
}

}  // namespace seqlab
