#include "utf8.h"

#include <gtest/gtest.h>

#include "error.h"

namespace seqlab {
namespace {

std::string Replaced(std::string_view bytes) {
  Utf8Stream stream;
  std::string text = stream.Push(bytes);
  return text + stream.Finish();
}

// Unicode 15, table 3-8, and section 3.9's example of a truncated sequence.
TEST(Utf8, ReplacesTheLongestBeginningsOfCharacters) {
  const std::string r(kReplacement);
  EXPECT_EQ(Replaced("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(Replaced("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(Replaced("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(Replaced("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
}

TEST(Utf8, HoldsBackAnUnfinishedCharacter) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Push("\xE2\x82"), "");
  EXPECT_EQ(stream.Push("\xAC!"), "\xE2\x82\xAC!");
  EXPECT_EQ(stream.Push("\xF0\x9F"), "");
  EXPECT_EQ(stream.Finish(), kReplacement);
  EXPECT_EQ(stream.Finish(), "");
}

TEST(Utf8, NamesTheFirstInvalidByte) {
  EXPECT_NO_THROW(CheckUtf8(""));
  EXPECT_NO_THROW(CheckUtf8("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"));
  for (const auto& [text, offset] :
       {std::pair{"\x80", 0}, {"ab\xFF", 2}, {"\xC3\xA9\xE2\x82", 2}, {"a\xED\xA0\x80", 1}}) {
    try {
      CheckUtf8(text);
      FAIL() << text;
    } catch (const Refusal& refusal) {
      EXPECT_NE(std::string(refusal.what()).find(Join("at byte ", offset, ";")), std::string::npos) << refusal.what();
    }
  }
}

TEST(Utf8, SplitsWordsAtUnicodeWhitespace) {
  using Views = std::vector<std::string_view>;
  EXPECT_EQ(Words(" a\tb\xC2\xA0"
                  "c\xE3\x80\x80\xE2\x80\x8B\n",
                  false),
            (Views{"a", "b", "c", "\xE2\x80\x8B"}));
  EXPECT_EQ(Words("a\n\nb", true), (Views{"a", "\n", "\n", "b"}));
  EXPECT_EQ(Words(" \n", false), Views{});
}

}  // namespace
}  // namespace seqlab
