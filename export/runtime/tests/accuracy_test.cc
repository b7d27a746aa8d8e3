#include "accuracy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "error.h"

namespace seqlab {
namespace {

// Two rows of two positions; the first of the second row is padding.
const Case kCase{"", 2, {1, 1, 0, 1}};
// Keys of two heads: (B, H, T, K).
const TensorInfo kKeys{{std::string("B"), int64_t{2}, std::string("S+T"), int64_t{1}}, DType::kFloat32, "new_state_k"};

TEST(Concatenated, AlongAnAxis) {
  const Numbers left{{2, 1}, {1, 2}}, right{{2, 2}, {3, 4, 5, 6}};
  const Numbers whole = Concatenated({left, right}, 1);
  EXPECT_EQ(whole.dims, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(whole.values, (std::vector<float>{1, 3, 4, 2, 5, 6}));
}

TEST(Selected, IsOfRealPositions) {
  const Numbers keys{{2, 2, 2, 1}, {1, 2, 3, 4, 5, 6, 7, 8}};
  EXPECT_EQ(Selected(keys, kKeys, kCase, 100), (std::vector<double>{1, 3, 2, 4, 6, 8}));
}

TEST(Selected, OfOtherPositionsIsRefused) {
  const Numbers keys{{2, 2, 1000, 1}, std::vector<float>(4000)};
  EXPECT_THROW(Selected(keys, kKeys, kCase, 100), Refusal);
}

TEST(Judged, ByNothingThatIsNotFinite) {
  for (const double own : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    const Check check = Judged("prefill", "logits", {0.0, 0.0}, own, Limit(own, "fp16"));
    EXPECT_FALSE(check.ok);
    EXPECT_EQ(check.note, "PyTorch's own error is not finite");
  }
  EXPECT_TRUE(Judged("prefill", "logits", {0.5, 0.5}, 0.25, Limit(0.25, "fp32")).ok);
}

}  // namespace
}  // namespace seqlab
