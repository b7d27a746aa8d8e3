// States of prompt prefixes, so that prompts that begin alike are read once.
#ifndef SEQLAB_PREFIX_CACHE_H_
#define SEQLAB_PREFIX_CACHE_H_

#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>
#include <vector>

#include "seqlab/runtime.h"
#include "tensors.h"

namespace seqlab {

// Holds at most `most_bytes`, and drops the least recently used states.
class PrefixCache {
 public:
  explicit PrefixCache(int64_t most_bytes) : most_bytes_(most_bytes) {}

  // Returns the state after the first `length` ids, or null. Nothing may write into it.
  const std::vector<Value>* Find(const Ids& ids, int64_t length);

  // Keeps a state of `bytes` after the first `length` ids, unless it is larger than the cache.
  void Keep(const Ids& ids, int64_t length, std::vector<Value> state, int64_t bytes);

  bool Fits(int64_t bytes) const { return bytes <= most_bytes_; }
  int64_t bytes() const { return bytes_; }

 private:
  struct Entry {
    std::string key;
    std::vector<Value> state;
    int64_t bytes;
  };
  const int64_t most_bytes_;
  int64_t bytes_ = 0;
  std::list<Entry> entries_;  // the most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> places_;
};

}  // namespace seqlab

#endif  // SEQLAB_PREFIX_CACHE_H_
