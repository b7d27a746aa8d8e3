#include "byte_pairs.h"

#include <queue>
#include <tuple>

#include "error.h"

namespace seqlab {

BytePairs::BytePairs(std::unordered_map<std::string, int64_t> ids,
                     const std::vector<std::pair<std::string, std::string>>& merges, bool whole_first)
    : ids_(std::move(ids)), whole_first_(whole_first) {
  int64_t rank = 0;
  for (const auto& [left, right] : merges) {
    const auto first = ids_.find(left), second = ids_.find(right), both = ids_.find(left + right);
    if (first == ids_.end() || second == ids_.end() || both == ids_.end()) {
      Refuse("merge ", rank, " of its pretrained.json is not of tokens");
    }
    merges_[Pair(first->second, second->second)] = {rank++, both->second};
  }
}

void BytePairs::Encode(const std::string& word, Ids& ids) const {
  if (whole_first_) {
    if (const auto found = ids_.find(word); found != ids_.end()) return ids.push_back(found->second);
  }
  // A list of symbols, linked both ways; a merged one keeps the place of its left part.
  struct Symbol {
    int64_t id;
    int64_t before, after;
    bool gone = false;
  };
  std::vector<Symbol> symbols;
  for (const char byte : word) {
    const auto found = ids_.find(std::string(1, byte));
    if (found == ids_.end()) continue;
    const auto place = static_cast<int64_t>(symbols.size());
    symbols.push_back({found->second, place - 1, place + 1});
  }
  const auto count = static_cast<int64_t>(symbols.size());
  // The earliest merge first, and of its places the leftmost.
  using Found = std::tuple<int64_t, int64_t, int64_t>;  // rank, place, id
  std::priority_queue<Found, std::vector<Found>, std::greater<>> queue;
  const auto look = [&](int64_t place) {
    if (place < 0 || symbols[static_cast<size_t>(place)].after >= count) return;
    const Symbol& left = symbols[static_cast<size_t>(place)];
    const auto found = merges_.find(Pair(left.id, symbols[static_cast<size_t>(left.after)].id));
    if (found != merges_.end()) queue.emplace(found->second.rank, place, found->second.id);
  };
  for (int64_t place = 0; place + 1 < count; ++place) look(place);
  while (!queue.empty()) {
    const auto [rank, place, id] = queue.top();
    queue.pop();
    Symbol& left = symbols[static_cast<size_t>(place)];
    if (left.gone || left.after >= count) continue;
    Symbol& right = symbols[static_cast<size_t>(left.after)];
    // The pair may have changed since it was queued.
    const auto now = merges_.find(Pair(left.id, right.id));
    if (now == merges_.end() || now->second.id != id) continue;
    left.id = id;
    left.after = right.after;
    right.gone = true;
    if (left.after < count) symbols[static_cast<size_t>(left.after)].before = place;
    look(left.before);
    look(place);
  }
  for (const Symbol& symbol : symbols) {
    if (!symbol.gone) ids.push_back(symbol.id);
  }
}

}  // namespace seqlab
