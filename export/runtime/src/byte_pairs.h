// Byte-pair encoding of words (Sennrich et al. 2016, algorithm 1) with bytes as the first symbols (Radford et al.
// 2019).
#ifndef SEQLAB_BYTE_PAIRS_H_
#define SEQLAB_BYTE_PAIRS_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "seqlab/runtime.h"

namespace seqlab {

class BytePairs {
 public:
  // Takes the id of each token, and pairs of tokens in the order in which they are merged. With `whole_first` a word
  // that is a token is not split. Throws Refusal if a pair or its merge is no token.
  BytePairs(std::unordered_map<std::string, int64_t> ids,
            const std::vector<std::pair<std::string, std::string>>& merges, bool whole_first);

  // Adds the ids of a word. A byte that is no token has none.
  void Encode(const std::string& word, Ids& ids) const;

 private:
  struct Merge {
    int64_t rank, id;
  };
  static uint64_t Pair(int64_t left, int64_t right) {
    return static_cast<uint64_t>(left) << 32 | static_cast<uint64_t>(right);
  }

  std::unordered_map<std::string, int64_t> ids_;
  std::unordered_map<uint64_t, Merge> merges_;
  bool whole_first_;
};

}  // namespace seqlab

#endif  // SEQLAB_BYTE_PAIRS_H_
