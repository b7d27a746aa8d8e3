#include "prefix_cache.h"

#include "files.h"

namespace seqlab {

std::vector<std::string> PrefixKeys(const Ids& prompt, int64_t chunk) {
  std::vector<std::string> keys;
  std::string key;
  for (int64_t end = chunk; end < static_cast<int64_t>(prompt.size()); end += chunk) {
    const auto* first = reinterpret_cast<const char*>(prompt.data() + end - chunk);
    // Each digest is of the one before and of a chunk, so that all take the time of one over the prompt.
    key = Sha256OfText(key.append(first, static_cast<size_t>(chunk) * sizeof(Ids::value_type)));
    keys.push_back(key);
  }
  return keys;
}

const std::vector<Value>* PrefixCache::Find(const std::string& key) {
  const auto found = places_.find(key);
  if (found == places_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return &entries_.front().state;
}

void PrefixCache::Keep(const std::string& key, std::vector<Value> state, int64_t bytes) {
  if (!Fits(bytes) || places_.count(key) > 0) return;
  entries_.push_front({key, std::move(state), bytes + kEntryBytes});
  places_.emplace(key, entries_.begin());
  for (bytes_ += bytes + kEntryBytes; bytes_ > most_bytes_; entries_.pop_back()) {
    bytes_ -= entries_.back().bytes;
    places_.erase(entries_.back().key);
  }
}

}  // namespace seqlab
