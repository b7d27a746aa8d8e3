#include "tokenizer.h"

#include <gtest/gtest.h>

#include "error.h"

namespace seqlab {
namespace {

std::string Refused(const std::string& description, const std::string& asset = "") {
  try {
    MakeTokenizer(description, asset);
  } catch (const Refusal& refusal) {
    return refusal.what();
  }
  return "accepted";
}

std::string Streamed(const Tokenizer& tokenizer, const Ids& ids) {
  TextStream stream(tokenizer);
  std::string text;
  for (const int64_t id : ids) text += stream.Push(id);
  return text + stream.Finish();
}

TEST(ByteTokenizer, TakesAnyBytes) {
  const auto tokenizer = MakeByteTokenizer();
  EXPECT_EQ(tokenizer->vocab_size(), 259);
  EXPECT_EQ(tokenizer->Encode("a\xFF"), (Ids{100, 258}));
  EXPECT_EQ(tokenizer->Decode({1, 100, 258, 2}), "a\xEF\xBF\xBD");
}

TEST(CharTokenizer, KnowsItsAlphabet) {
  const auto tokenizer = MakeCharTokenizer("ab\xC3\xA9");
  EXPECT_EQ(tokenizer->Encode("\xC3\xA9"
                              "bz"),
            (Ids{6, 5, 3}));
  EXPECT_EQ(tokenizer->Decode({6, 5, 3, 0}),
            "\xC3\xA9"
            "b\xEF\xBF\xBD");
  EXPECT_THROW(tokenizer->Encode("a\x80"), Refusal);
  EXPECT_THROW(tokenizer->Decode({7}), Refusal);
  EXPECT_THROW(tokenizer->Decode({-1}), Refusal);
}

TEST(WordTokenizer, DropsTheFirstSpaceOnly) {
  const auto tokenizer = MakeWordTokenizer({"the", "\n", "cat"}, true);
  const Ids ids = tokenizer->Encode("the  dog\nthe cat");
  EXPECT_EQ(ids, (Ids{4, 3, 5, 4, 6}));
  EXPECT_EQ(tokenizer->Decode(ids), "the <unk>\n the cat");
  EXPECT_EQ(Streamed(*tokenizer, ids), tokenizer->Decode(ids));
  EXPECT_EQ(tokenizer->Decode({5, 4}), "\n the");
}

TEST(Tokenizers, DescribedBadlyAreRefused) {
  EXPECT_EQ(Refused("{"), "tokenizer.json is not JSON, at byte 2");
  EXPECT_EQ(Refused("{}"), "tokenizer.json lacks class");
  EXPECT_EQ(Refused(R"({"class": "ByteTokenizer", "vocab_size": 259})"), "tokenizer.json lacks assets");
  EXPECT_EQ(Refused("[]"), "tokenizer.json must be an object, got []");
  EXPECT_EQ(Refused(R"({"class": "ByteTokenizer", "assets": {}, "vocab_size": 7})"),
            "this tokenizer has 259 tokens, its description says 7");
  EXPECT_EQ(Refused(R"({"class": "CharTokenizer", "assets": {}, "vocab_size": 6, "alphabet": "aa"})"),
            "the tokenizer has \"a\" twice");
  EXPECT_NE(
      Refused(R"({"class": "OtherTokenizer", "assets": {}, "vocab_size": 6})").find("the runtime has no tokenizer"),
      std::string::npos);
  EXPECT_NE(Refused(R"({"class": "SubwordTokenizer", "assets": {"tokenizer.model": "00"}})", "x").find("is damaged"),
            std::string::npos);
}

TEST(SubwordTokenizer, RefusesWhatIsNoModel) { EXPECT_THROW(MakeSubwordTokenizer("no model"), Refusal); }

}  // namespace
}  // namespace seqlab
