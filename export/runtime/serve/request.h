// What clients ask for, read from JSON.
#ifndef SEQLAB_SERVE_REQUEST_H_
#define SEQLAB_SERVE_REQUEST_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "seqlab/runtime.h"

namespace seqlab::serve {

// A failure with its HTTP status, reported in OpenAI's shape.
struct HttpError {
  int status = 400;
  std::string message;
  std::string param;  // the field that is wrong, if one is
  std::string code;   // a word to branch on, if there is one
};

// A text, its ids, or a chat to answer.
using Prompt = std::variant<std::string, Ids, std::vector<Message>>;

// Body of /v1/completions or /v1/chat/completions.
struct CompletionRequest {
  std::string model;
  bool chat = false;
  std::vector<Prompt> prompts;
  GenerateOptions options;     // without stop_ids
  bool has_max_tokens = true;  // otherwise the text ends where the model's reach ends, if not before
  int64_t n = 1;               // number of choices for each prompt
  std::vector<std::string> stop;
  std::optional<int64_t> logprobs;
  bool echo = false, stream = false, include_usage = false;
};

// Body of /translate, /classify and /tag.
struct TextsRequest {
  std::string model;
  std::vector<std::string> texts;
  TranslateOptions translate;
};

// Each reads a body. Throws HttpError naming the field that is wrong.
CompletionRequest ReadCompletion(const std::string& body);
CompletionRequest ReadChat(const std::string& body);
TextsRequest ReadTexts(const std::string& body, bool translates);

// Status and body of a failure of the runtime.
HttpError ErrorOf(const Status& status);

}  // namespace seqlab::serve

#endif  // SEQLAB_SERVE_REQUEST_H_
