#include "files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "error.h"

namespace seqlab {
namespace {

namespace fs = std::filesystem;

// A folder of the test's own.
class Files : public testing::Test {
 protected:
  void SetUp() override {
    home_ = fs::temp_directory_path() / ("seqlab-" + std::to_string(getpid()));
    fs::create_directories(home_ / "bundle");
    std::ofstream(home_ / "bundle/abc") << "abc";
    std::ofstream(home_ / "outside") << "abc";
  }
  void TearDown() override { fs::remove_all(home_); }

  fs::path home_;
  // FIPS 180-2, appendix B.1.
  const std::string sha256_ = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
};

TEST_F(Files, Sha256) {
  EXPECT_EQ(Sha256OfText("abc"), sha256_);
  EXPECT_EQ(Sha256OfFile(home_ / "bundle/abc"), sha256_);
  EXPECT_EQ(Sha256OfText(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST_F(Files, DamageIsNamed) {
  const fs::path bundle = home_ / "bundle";
  EXPECT_EQ(Damage(bundle, "abc", sha256_), "");
  EXPECT_EQ(Damage(bundle, "abc", std::string(64, '0')), "its sha256 is not the manifest's");
  EXPECT_EQ(Damage(bundle, "none", sha256_), "it is missing");
  fs::create_symlink("../outside", bundle / "out");
  fs::create_symlink("abc", bundle / "in");
  EXPECT_EQ(Damage(bundle, "out", sha256_), "it is a link out of the bundle");
  EXPECT_EQ(Damage(bundle, "in", sha256_), "");
  fs::create_directories(home_ / "bundle-two");
  std::ofstream(home_ / "bundle-two/abc") << "abc";
  fs::create_symlink("../bundle-two/abc", bundle / "beside");
  EXPECT_EQ(Damage(bundle, "beside", sha256_), "it is a link out of the bundle");
}

TEST(Paths, LeadNoHigher) {
  for (const char* name : {"abc", "tokenizer/tokenizer.json", "a..b", "./abc"}) EXPECT_TRUE(IsInside(name)) << name;
  for (const char* name : {"", ".", "..", "../abc", "a/../../b", "/etc/passwd", "a\\b"}) {
    EXPECT_FALSE(IsInside(name)) << name;
  }
}

TEST_F(Files, WhatCannotBeReadIsRefused) {
  EXPECT_THROW(ReadFile(home_ / "none"), Refusal);
  EXPECT_EQ(ReadFile(home_ / "outside"), "abc");
}

}  // namespace
}  // namespace seqlab
