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

// Returns the key of each prefix of whole chunks that is shorter than a prompt: a digest of the ids up to there.
std::vector<std::string> PrefixKeys(const Ids& prompt, int64_t chunk);

// Holds at most `most_bytes`, and drops the least recently used states.
class PrefixCache {
 public:
  explicit PrefixCache(int64_t most_bytes) : most_bytes_(most_bytes) {}

  // Returns the state of a prefix, or null. Nothing may write into it.
  const std::vector<Value>* Find(const std::string& key);

  // Keeps a state of `bytes`, unless it is larger than the cache.
  void Keep(const std::string& key, std::vector<Value> state, int64_t bytes);

  bool Fits(int64_t bytes) const { return bytes + kEntryBytes <= most_bytes_; }
  bool empty() const { return entries_.empty(); }
  int64_t bytes() const { return bytes_; }

 private:
  static constexpr int64_t kEntryBytes = 512;  // of keys and links
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
