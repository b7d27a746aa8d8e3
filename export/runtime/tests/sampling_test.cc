#include "sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "error.h"

namespace seqlab {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The known answers that the authors publish with Random123.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}), (PhiloxWords{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(Philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (PhiloxWords{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxWords{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Choose, GreedyTakesTheLowestOfEqualIds) {
  Sampling greedy;
  greedy.temperature = 0;
  EXPECT_EQ(Choose({0, 2, 1, 2}, greedy, 0, 0), 1);
}

TEST(Choose, DrawsAsOftenAsTheSoftmaxSays) {
  const std::vector<double> logits = {0.0, std::log(2.0), std::log(5.0)};
  std::vector<int> counts(3);
  constexpr int kDraws = 40000;
  for (int step = 0; step < kDraws; ++step) ++counts[Choose(logits, Sampling{}, step, 3)];
  const double expected[] = {1 / 8.0, 2 / 8.0, 5 / 8.0};
  for (int token = 0; token < 3; ++token) {
    const double deviation = std::sqrt(kDraws * expected[token] * (1 - expected[token]));
    EXPECT_NEAR(counts[token], kDraws * expected[token], 5 * deviation);
  }
}

TEST(Choose, CutsWhatIsUnlikely) {
  const std::vector<double> logits = {std::log(1.0), std::log(4.0), std::log(3.0), std::log(2.0)};
  const auto drawn = [&](const Sampling& sampling) {
    std::vector<bool> seen(4);
    for (int step = 0; step < 500; ++step) seen[Choose(logits, sampling, step, 0)] = true;
    return seen;
  };
  Sampling top_k, top_p, min_p;
  top_k.top_k = 2;
  top_p.top_p = 0.65;  // 0.4 + 0.3 is the first sum that reaches it
  min_p.min_p = 0.4;   // 0.4 of 0.4 is 0.16
  EXPECT_EQ(drawn(Sampling{}), (std::vector<bool>{true, true, true, true}));
  EXPECT_EQ(drawn(top_k), (std::vector<bool>{false, true, true, false}));
  EXPECT_EQ(drawn(top_p), (std::vector<bool>{false, true, true, false}));
  EXPECT_EQ(drawn(min_p), (std::vector<bool>{false, true, true, true}));
}

TEST(Choose, MinPOfOneKeepsTheLargestAndItsTies) {
  Sampling certain;
  certain.min_p = 1;
  std::vector<bool> seen(3);
  for (int step = 0; step < 100; ++step) seen[Choose({0, 1, 1}, certain, step, 0)] = true;
  EXPECT_EQ(seen, (std::vector<bool>{false, true, true}));
}

TEST(Choose, RefusesWhatIsNoNumber) {
  EXPECT_THROW(Choose({0, std::nan(""), 1}, Sampling{}, 0, 0), Refusal);
  EXPECT_THROW(Choose({-kInfinity, -kInfinity}, Sampling{}, 0, 0), Refusal);
  EXPECT_THROW(Choose({0, kInfinity}, Sampling{}, 0, 0), Refusal);
}

TEST(Options, OutsideTheirRangeAreRefused) {
  for (const double temperature : {-1.0, kInfinity, std::nan("")}) {
    EXPECT_THROW(CheckOptions(Sampling{temperature}), Refusal) << temperature;
  }
  EXPECT_THROW(CheckOptions(Sampling{1, 0}), Refusal);
  EXPECT_THROW(CheckOptions(Sampling{1, std::nullopt, 0}), Refusal);
  EXPECT_THROW(CheckOptions(Sampling{1, std::nullopt, 1, 1.5}), Refusal);
  EXPECT_THROW(CheckOptions(Repetition{0}), Refusal);
  EXPECT_THROW(CheckOptions(Repetition{1, 0}), Refusal);
  EXPECT_NO_THROW(CheckOptions(Sampling{0, 1, 1, 0}));
}

TEST(Repetition, PenalisesAndBlocks) {
  std::vector<double> logits = {2, -2, 1, 1};
  Apply(Repetition{2.0}, {0, 1, 0}, logits);
  EXPECT_EQ(logits, (std::vector<double>{1, -4, 1, 1}));
  logits = {1, 1, 1, 1};
  Apply(Repetition{1.0, 2}, {0, 1, 2, 0, 3, 0}, logits);
  EXPECT_EQ(logits, (std::vector<double>{1, -kInfinity, 1, -kInfinity}));
  logits = {1, 1};
  Apply(Repetition{1.0, 1}, {0, 1}, logits);
  EXPECT_EQ(logits, (std::vector<double>{1, 1})) << "where all would be blocked, none is";
  Apply(Repetition{1.0, 5}, {0, 1}, logits);
  EXPECT_EQ(logits, (std::vector<double>{1, 1}));
}

TEST(LogSoftmax, IsThatOfTheStandardLibrary) {
  std::vector<double> logits;
  for (int token = 0; token < 1003; ++token) logits.push_back(40 * std::sin(token * token));
  logits.insert(logits.end(), {-700.0, -1e6, -kInfinity});
  long double sum = 0;
  for (const double logit : logits) sum += std::exp(static_cast<long double>(logit) - 40);
  std::vector<double> found = logits;
  LogSoftmax(found);
  for (size_t token = 0; token + 1 < logits.size(); ++token) {
    const auto expected = static_cast<double>(logits[token] - 40 - std::log(sum));
    EXPECT_NEAR(found[token], expected, 4e-16 * std::max(100.0, std::abs(expected)));
  }
  EXPECT_EQ(found.back(), -kInfinity);
}

TEST(LogSoftmax, SumsToOne) {
  std::vector<double> logits = {1000, 1001, 999, -kInfinity};
  LogSoftmax(logits);
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit);
  EXPECT_NEAR(sum, 1, 1e-12);
  EXPECT_NEAR(logits[1] - logits[0], 1, 1e-12);
}

}  // namespace
}  // namespace seqlab
