#include <gtest/gtest.h>

#include <locale>
#include <string>

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
  EXPECT_EQ(code(std::runtime_error("Failed to allocate memory for requested buffer of size 256")),
            StatusCode::kOutOfMemory);
  EXPECT_EQ(code(std::runtime_error("CUDA failure 2: out of memory")), StatusCode::kOutOfMemory);
  EXPECT_EQ(code(std::runtime_error("")), StatusCode::kInternal);
  EXPECT_EQ(code(7), StatusCode::kInternal);
}

// A locale that writes 1234567.5 as 1.234.567,5.
struct Grouped : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(Join, WritesNumbersAlikeInEveryLocale) {
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Grouped));
  const std::string joined = Join(1234567, " ", 0.5), scientific = Scientific(0.00123);
  std::locale::global(before);
  EXPECT_EQ(joined, "1234567 0.5");
  EXPECT_EQ(scientific, "1.23e-03");
}

}  // namespace
}  // namespace seqlab
