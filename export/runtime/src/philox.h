// Philox4x32-10, the counter-based generator of all sampling.
//
// Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
#ifndef SEQLAB_PHILOX_H_
#define SEQLAB_PHILOX_H_

#include <array>
#include <cstdint>

namespace seqlab {

using PhiloxWords = std::array<uint32_t, 4>;

inline PhiloxWords Philox4x32(PhiloxWords counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t low = uint64_t{0xD2511F53} * counter[0];
    const uint64_t high = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(high >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(high),
               static_cast<uint32_t>(low >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(low)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// A number of [0, 1) with 53 random bits, for the token that `step` and `row` name.
inline double Uniform(uint64_t seed, uint32_t step, uint32_t row) {
  const PhiloxWords words =
      Philox4x32({step, row, 0, 0}, {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return (static_cast<double>(words[0] >> 5) * 67108864.0 + static_cast<double>(words[1] >> 6)) / 9007199254740992.0;
}

}  // namespace seqlab

#endif  // SEQLAB_PHILOX_H_
