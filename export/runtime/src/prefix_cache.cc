#include "prefix_cache.h"

namespace seqlab {
namespace {

std::string KeyOf(const Ids& ids, int64_t length) {
  return {reinterpret_cast<const char*>(ids.data()), static_cast<size_t>(length) * sizeof(Ids::value_type)};
}

}  // namespace

const std::vector<Value>* PrefixCache::Find(const Ids& ids, int64_t length) {
  const auto found = places_.find(KeyOf(ids, length));
  if (found == places_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return &entries_.front().state;
}

void PrefixCache::Keep(const Ids& ids, int64_t length, std::vector<Value> state, int64_t bytes) {
  std::string key = KeyOf(ids, length);
  if (!Fits(bytes) || places_.count(key) > 0) return;
  entries_.push_front({key, std::move(state), bytes});
  places_.emplace(std::move(key), entries_.begin());
  for (bytes_ += bytes; bytes_ > most_bytes_; entries_.pop_back()) {
    bytes_ -= entries_.back().bytes;
    places_.erase(entries_.back().key);
  }
}

}  // namespace seqlab
