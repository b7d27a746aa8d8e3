#include <gtest/gtest.h>

#include "error.h"
#include "seqlab/runtime.h"

namespace seqlab {
namespace {

TEST(Result, HasAValueOrAnError) {
  const Result<int> value = 7, error = Status(StatusCode::kNotFound, "there is no bundle");
  EXPECT_TRUE(value.ok() && value.status().ok());
  EXPECT_EQ(*value, 7);
  EXPECT_FALSE(error.ok());
  EXPECT_EQ(error.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Result<int>(Status()).status().code(), StatusCode::kInternal) << "neither";
}

TEST(Guarded, WhatIsThrownHasACode) {
  const auto code = [](auto thrown) { return Guarded([&] { throw thrown; }).code(); };
  EXPECT_EQ(code(Refusal("a")), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Refusal("a", StatusCode::kCancelled)), StatusCode::kCancelled);
  EXPECT_EQ(code(std::bad_alloc()), StatusCode::kOutOfMemory);
  EXPECT_EQ(code(std::runtime_error("")), StatusCode::kInternal);
  EXPECT_EQ(code(7), StatusCode::kInternal);
}

}  // namespace
}  // namespace seqlab
