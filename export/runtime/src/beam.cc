#include <algorithm>
#include <cmath>
#include <functional>
#include <future>
#include <limits>
#include <thread>

#include "error.h"
#include "generate.h"
#include "sampling.h"

namespace seqlab {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

// Calls `work` with each of 0..count - 1, on `threads` threads; 0 = one per processor.
void InParallel(size_t count, int threads, const std::function<void(size_t)>& work) {
  const size_t available = threads > 0 ? static_cast<size_t>(threads) : std::thread::hardware_concurrency();
  const size_t workers = std::max<size_t>(1, std::min(count, available));
  const auto share = [&](size_t first) {
    for (size_t place = first; place < count; place += workers) work(place);
  };
  std::vector<std::future<void>> others;
  for (size_t worker = 1; worker < workers; ++worker) others.push_back(std::async(std::launch::async, share, worker));
  share(0);
  for (std::future<void>& other : others) other.get();
}

// The beams of one prompt.
class Search {
 public:
  Search(const Ids& prompt, const BeamOptions& options)
      : prompt_(prompt), options_(options), tokens_(options.beams), scores_(options.beams, kNever) {
    // All beams are the same at first, so one alone may continue.
    scores_[0] = 0.0;
  }

  // Returns true if K texts are finished and no unfinished beam's score so far is above the best of them.
  bool done() const {
    if (static_cast<int64_t>(finished_.size()) < options_.beams) return false;
    const double going = *std::max_element(scores_.begin(), scores_.end()) / Length(tokens_[0].size());
    return std::any_of(finished_.begin(), finished_.end(),
                       [&](const Hypothesis& found) { return going <= found.score; });
  }

  // Extends the beams by one token, from the logits (K, V) at `first_row`.
  void Extend(const Logits& logits, int64_t first_row, bool last) {
    going_.clear();
    std::vector<double> scores;
    const std::vector<Candidate> best = Best(logits, first_row);
    for (size_t rank = 0; rank < best.size() && static_cast<int64_t>(going_.size()) < options_.beams; ++rank) {
      const auto& [total, beam, token] = best[rank];
      const bool stops = std::count(options_.stop_ids.begin(), options_.stop_ids.end(), token) > 0;
      if (!stops && !last) {
        going_.emplace_back(beam, token);
        scores.push_back(total);
      } else if (static_cast<int64_t>(rank) < options_.beams) {
        Ids tokens = tokens_[beam];
        tokens.push_back(token);
        const double length = Length(tokens.size());
        finished_.push_back({std::move(tokens), total / length});
      }
    }
    // A model of few tokens may have fewer continuations than beams: the other beams have score -inf.
    going_.resize(options_.beams, {0, 0});
    scores.resize(options_.beams, kNever);
    std::vector<Ids> tokens;
    for (const auto& [beam, token] : going_) {
      tokens.push_back(tokens_[beam]);
      tokens.back().push_back(token);
    }
    tokens_ = std::move(tokens);
    scores_ = std::move(scores);
  }

  // Returns, for each new beam, the old beam that it continues and its new token.
  const std::vector<std::pair<int64_t, int64_t>>& going() const { return going_; }

  // Returns the K best finished texts, the best first.
  std::vector<Hypothesis> Found() {
    std::stable_sort(finished_.begin(), finished_.end(),
                     [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
    finished_.resize(std::min(finished_.size(), static_cast<size_t>(options_.beams)));
    return finished_;
  }

 private:
  // A continuation: the sum of its log-probabilities, the beam that it continues, and its token.
  struct Candidate {
    double total;
    int64_t beam, token;
  };

  // Returns the divisor of the score of a text with this number of tokens.
  double Length(size_t tokens) const { return std::pow(static_cast<double>(tokens), options_.length_penalty); }

  // Returns the best continuations, as many as `Extend` may look at, the best first. Ties go to the earlier beam, then
  // to the lower token. All totals are finite.
  std::vector<Candidate> Best(const Logits& logits, int64_t first_row) const {
    const auto stops = static_cast<int64_t>(options_.stop_ids.size());
    const auto most = static_cast<size_t>(options_.beams * (1 + stops));
    std::vector<Candidate> best;
    for (int64_t beam = 0; beam < options_.beams; ++beam) {
      if (scores_[beam] == kNever) continue;
      if (IsFree(options_.repetition)) {
        Rank(logits.Row(first_row + beam), logits.vocab_size, beam, most, best);
      } else {
        std::vector<double> row = logits.Doubles(first_row + beam);
        Ids text = prompt_;
        text.insert(text.end(), tokens_[beam].begin(), tokens_[beam].end());
        Apply(options_.repetition, text, row);
        Rank(row.data(), logits.vocab_size, beam, most, best);
      }
    }
    return best;
  }

  // Inserts those continuations of a beam that are among the `most` best.
  template <typename Number>
  void Rank(const Number* logits, int64_t vocab_size, int64_t beam, size_t most, std::vector<Candidate>& best) const {
    const auto [largest, whole] = Normaliser(logits, vocab_size);
    for (int64_t token = 0; token < vocab_size; ++token) {
      const double total = scores_[beam] + (logits[token] - largest - whole);
      if (!(total > (best.size() < most ? kNever : best.back().total))) continue;
      const auto place = std::upper_bound(best.begin(), best.end(), total,
                                          [](double one, const Candidate& other) { return one > other.total; });
      best.insert(place, {total, beam, token});
      if (best.size() > most) best.pop_back();
    }
  }

  const Ids& prompt_;
  const BeamOptions& options_;
  std::vector<std::pair<int64_t, int64_t>> going_;
  std::vector<Hypothesis> finished_;
  std::vector<Ids> tokens_;
  std::vector<double> scores_;
};

}  // namespace

std::vector<std::vector<Hypothesis>> BeamSearch(Decoder& decoder, const std::vector<Ids>& prompts,
                                                const BeamOptions& options) {
  constexpr int64_t kMostBeams = 10000;
  if (options.beams < 1 || options.beams > kMostBeams) {
    Refuse("beams must be from 1 to ", kMostBeams, ", got ", options.beams);
  }
  CheckOptions(options.repetition);
  CheckLengths(decoder.bundle().manifest, prompts, options.max_new_tokens);
  Logits logits = decoder.Prefill(prompts);
  // All K beams of a prompt begin with its logits and state: (B, V) to (B x K, V).
  std::vector<float> repeated;
  std::vector<int64_t> rows;
  std::vector<Search> searches;
  for (size_t prompt = 0; prompt < prompts.size(); ++prompt) {
    searches.emplace_back(prompts[prompt], options);
    const float* first = logits.Row(static_cast<int64_t>(prompt));
    for (int64_t beam = 0; beam < options.beams; ++beam) {
      rows.push_back(static_cast<int64_t>(prompt));
      repeated.insert(repeated.end(), first, first + logits.vocab_size);
    }
  }
  decoder.Select(rows);
  logits = ToLogits(static_cast<int64_t>(rows.size()), logits.vocab_size, std::move(repeated));
  std::vector<Search*> going;
  for (Search& search : searches) going.push_back(&search);
  for (int64_t step = 0; step < options.max_new_tokens; ++step) {
    const bool last = step + 1 == options.max_new_tokens;
    InParallel(going.size(), decoder.bundle().options.threads,
               [&](size_t place) { going[place]->Extend(logits, static_cast<int64_t>(place) * options.beams, last); });
    rows.clear();
    Ids tokens;
    std::vector<Search*> rest;
    for (size_t place = 0; place < going.size(); ++place) {
      if (going[place]->done()) continue;
      rest.push_back(going[place]);
      for (const auto& [beam, token] : going[place]->going()) {
        rows.push_back(static_cast<int64_t>(place) * options.beams + beam);
        tokens.push_back(token);
      }
    }
    going = std::move(rest);
    if (going.empty() || last) break;
    decoder.Select(rows);
    logits = decoder.Step(tokens);
  }
  std::vector<std::vector<Hypothesis>> found;
  for (Search& search : searches) found.push_back(search.Found());
  return found;
}

}  // namespace seqlab
