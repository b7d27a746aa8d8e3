#include "golden.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "error.h"

namespace seqlab {
namespace {

// Makes a .npy file of NumPy's format 1.0.
std::string Npy(const std::string& type, const std::string& shape, const std::string& data) {
  const std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }\n";
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + '\0' + header + data;
}

TEST(Npy, Numbers) {
  const NpyArray array = ParseNpy(Npy("<i2", "2, 1", std::string("\x01\x00\xFF\xFF", 4)));
  EXPECT_EQ(array.dims, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(array.values, (std::vector<double>{1, -1}));
  EXPECT_EQ(ParseNpy(Npy("|b1", "", "\x01")).values, std::vector<double>{1});
  EXPECT_EQ(ParseNpy(Npy("<U2", "", std::string("a\0\0\0b\0\0\0", 8))).text, "ab");
}

TEST(Npy, HalfPrecision) {
  // IEEE 754: 1, -2, the smallest subnormal, infinity.
  const NpyArray array = ParseNpy(Npy("<f2", "4,", std::string("\x00\x3C\x00\xC0\x01\x00\x00\x7C", 8)));
  EXPECT_EQ(array.values, (std::vector<double>{1, -2, std::ldexp(1, -24), INFINITY}));
}

TEST(Npy, DamagedIsRefused) {
  EXPECT_THROW(ParseNpy(""), Refusal);
  EXPECT_THROW(ParseNpy("\x93NUMPY and so on"), Refusal);
  EXPECT_THROW(ParseNpy(Npy("<f4", "2,", "1234")), Refusal) << "too short";
  EXPECT_THROW(ParseNpy(Npy("<f4", "1,", "12345")), Refusal) << "too long";
  EXPECT_THROW(ParseNpy(Npy("|O", "1,", "12345678")), Refusal) << "a pickle";
  EXPECT_THROW(ParseNpy(Npy("<f4", "9999999999999999999999, 99999999999", "")), Refusal) << "no memory has it";
}

TEST(GoldenFile, WhatIsNoZipFileIsRefused) { EXPECT_THROW(GoldenFile("/dev/null"), Refusal); }

}  // namespace
}  // namespace seqlab
