// A request's texts as they are written: tokens become text, and stop strings end it.
#ifndef SEQLAB_SERVE_COMPLETION_H_
#define SEQLAB_SERVE_COMPLETION_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "metrics.h"
#include "request.h"
#include "seqlab/engine.h"

namespace seqlab::serve {

// A token of a choice, with the log-probabilities that were asked for.
struct TokenFacts {
  std::string text;
  double log_probability = 0.0;
  std::vector<std::pair<std::string, double>> likeliest;
};

// New text of a choice.
struct Piece {
  size_t choice = 0;
  std::string text;
  std::vector<TokenFacts> tokens;  // empty unless log-probabilities were asked for
  std::string finish;              // "stop" or "length" at the end of the choice
};

struct Usage {
  int64_t prompt_tokens = 0, cached_tokens = 0, new_tokens = 0;
};

// Choice i * n + k is the k-th text of prompt i. Unfinished choices are cancelled on destruction.
class Completion {
 public:
  // Queues all choices. Throws HttpError if one is refused, and then cancels the others.
  Completion(Engine& engine, const Model& model, const CompletionRequest& request, std::shared_ptr<Timings> timings);
  ~Completion();
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  // Waits for news for at most `most`. Returns nothing if there is none. Throws HttpError if a choice failed.
  std::vector<Piece> Next(std::chrono::milliseconds most);

  size_t size() const { return choices_.size(); }
  bool done() const { return open_ == 0; }
  const Usage& usage() const { return usage_; }
  // Prompt of a choice, as text.
  const std::string& prompt(size_t choice) const { return choices_[choice].prompt; }

 private:
  struct News;
  struct Choice {
    uint64_t id = 0;
    std::string prompt;
    TextPieces pieces;
    bool is_first;     // of the choices of its prompt
    std::string held;  // the beginning of a stop string, perhaps
    bool ended = false;
    int64_t new_tokens = 0;
  };
  // Adds text to a choice and returns what can be shown of it. If a stop string is in it, ends the choice.
  std::string Shown(Choice& choice, const std::string& text, bool last);
  void End(Choice& choice);
  std::string TextOf(int64_t token) const;

  Engine& engine_;
  const Model model_;
  const std::vector<std::string> stops_;
  const std::shared_ptr<News> news_;
  std::vector<Choice> choices_;
  size_t open_ = 0;
  Usage usage_;
};

}  // namespace seqlab::serve

#endif  // SEQLAB_SERVE_COMPLETION_H_
