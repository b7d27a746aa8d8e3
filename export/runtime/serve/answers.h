// Bodies of responses, in OpenAI's shapes where OpenAI has one.
#ifndef SEQLAB_SERVE_ANSWERS_H_
#define SEQLAB_SERVE_ANSWERS_H_

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "completion.h"
#include "request.h"
#include "served.h"

namespace seqlab::serve {

nlohmann::json ErrorBody(const HttpError& error);
nlohmann::json ModelBody(const Served& served);
nlohmann::json ModelsBody(const std::vector<std::shared_ptr<Served>>& all);

// Answers /translate, /classify and /tag. Calls `look` while it waits and between texts, which throws if nobody waits
// for the answer any more. Throws HttpError if the model does something else.
nlohmann::json TextsBody(Served& served, const TextsRequest& request, const std::string& path,
                         const std::function<void()>& look);

// Answers /v1/completions or /v1/chat/completions, whole or as events.
class CompletionAnswer {
 public:
  // Throws HttpError if the request is refused.
  CompletionAnswer(std::shared_ptr<Served> served, const CompletionRequest& request);

  // Waits for news for at most `most`. Throws HttpError if a text failed.
  void Wait(std::chrono::milliseconds most);
  bool done() const { return completion_.done(); }
  // Returns the whole answer.
  nlohmann::json Body() const;

  // Waits as `Wait` does, and returns the events with what is new.
  std::string Events(std::chrono::milliseconds most);

 private:
  struct Choice {
    std::string text;
    std::string finish;
    std::vector<TokenFacts> tokens;
    int64_t offset = 0;  // of the next token in the text, in characters
  };
  nlohmann::json Envelope(const char* of_chat) const;
  nlohmann::json UsageBody() const;
  // `offset` is that of the next token in the text.
  nlohmann::json LogProbabilities(const std::vector<TokenFacts>& tokens, int64_t& offset) const;

  const std::shared_ptr<Served> served_;
  const CompletionRequest request_;
  const std::string id_;
  const int64_t created_;
  Completion completion_;
  std::vector<Choice> choices_;
  bool begun_ = false;  // what comes before the first tokens was sent
};

}  // namespace seqlab::serve

#endif  // SEQLAB_SERVE_ANSWERS_H_
