#include "request.h"

#include <random>
#include <set>

#include "error.h"
#include "json_fields.h"

namespace seqlab::serve {
namespace {

using nlohmann::json;

constexpr int64_t kMostPrompts = 64, kMostChoices = 64, kMostTexts = 128, kMostStops = 4, kMostLikeliest = 20;
constexpr int64_t kMostNgram = 64;  // each token looks at the whole text for every one of them
constexpr int64_t kMostTokens = int64_t{1} << 31, kAnswerTokens = 1024;
constexpr size_t kMostMessages = 1024;
constexpr size_t kMostStopBytes = 256, kMostTextBytes = 32768;

template <typename... Parts>
[[noreturn]] void Wrong(const std::string& field, const Parts&... parts) {
  throw HttpError{400, Join(parts...), field, ""};
}

// The fields of a body, each of which must be asked for.
class Fields {
 public:
  explicit Fields(const std::string& body) {
    if (!IsTooDeep(body)) body_ = json::parse(body, nullptr, false);
    if (!body_.is_object()) throw HttpError{400, "the body must be a JSON object", "", ""};
  }

  // Returns a field, or null if it is absent or null.
  const json* Find(const std::string& name) {
    known_.insert(name);
    const auto found = body_.find(name);
    return found == body_.end() || found->is_null() ? nullptr : &*found;
  }

  bool Flag(const std::string& name) {
    const json* value = Find(name);
    if (value != nullptr && !value->is_boolean()) Wrong(name, name, " must be true or false");
    return value != nullptr && value->get<bool>();
  }

  std::string Text(const std::string& name) {
    const json* value = Find(name);
    if (value != nullptr && !value->is_string()) Wrong(name, name, " must be a string");
    return value != nullptr ? value->get<std::string>() : "";
  }

  double Number(const std::string& name, double otherwise) {
    const json* value = Find(name);
    if (value != nullptr && !value->is_number()) Wrong(name, name, " must be a number");
    return value != nullptr ? value->get<double>() : otherwise;
  }

  std::optional<int64_t> Int(const std::string& name, int64_t least, int64_t most) {
    const json* value = Find(name);
    if (value == nullptr) return std::nullopt;
    const bool fits = value->is_number_unsigned() ? value->get<uint64_t>() <= static_cast<uint64_t>(most)
                                                  : value->is_number_integer();
    if (!fits || value->get<int64_t>() < least || value->get<int64_t>() > most) {
      Wrong(name, name, " must be a whole number from ", least, " to ", most, ", got ", value->dump());
    }
    return value->get<int64_t>();
  }

  // Refuses a field that is given with another value than the one that changes nothing.
  void NotOffered(const std::string& name, const json& neutral) {
    const json* value = Find(name);
    if (value != nullptr && *value != neutral) Wrong(name, name, " is not offered");
  }

  void RefuseUnknown() const {
    for (const auto& [name, value] : body_.items()) {
      if (known_.count(name) == 0) Wrong(name, "unknown field \"", name, "\"");
    }
  }

 private:
  json body_;
  std::set<std::string> known_;
};

// Reads a string or a list of strings.
std::vector<std::string> Strings(const std::string& name, const json* value, size_t most) {
  if (value == nullptr) return {};
  const json list = value->is_array() ? *value : json::array({*value});
  if (list.size() > most) Wrong(name, name, " has ", list.size(), " strings, at most ", most, " are accepted");
  for (const json& one : list) {
    if (!one.is_string()) Wrong(name, name, " must be a string or a list of strings");
  }
  return list.get<std::vector<std::string>>();
}

bool AreIds(const json& value) {
  if (!value.is_array() || value.empty()) return false;
  for (const json& one : value) {
    if (!one.is_number_integer()) return false;
  }
  return true;
}

std::vector<Prompt> Prompts(const json* value) {
  std::vector<Prompt> prompts;
  if (value == nullptr) Wrong("prompt", "prompt is missing");
  const json list = value->is_string() || AreIds(*value) ? json::array({*value}) : *value;
  if (!list.is_array() || list.empty()) Wrong("prompt", "prompt must be a string, a list of ids, or a list of either");
  if (list.size() > kMostPrompts) {
    Wrong("prompt", "there are ", list.size(), " prompts, at most ", kMostPrompts, " are accepted");
  }
  for (const json& one : list) {
    if (one.is_string()) {
      prompts.emplace_back(one.get<std::string>());
    } else if (AreIds(one)) {
      prompts.emplace_back(one.get<Ids>());
    } else {
      Wrong("prompt", "prompt must be a string, a list of ids, or a list of either");
    }
  }
  return prompts;
}

// Reads a text, or a list of parts of one.
std::string Content(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) Wrong("messages", "content must be a string or a list of texts");
  std::string content;
  for (const json& part : value) {
    const bool is_text = part.is_object() && part.value("type", json()) == "text" && part.contains("text");
    if (!is_text || !part["text"].is_string()) Wrong("messages", "content has a part that is not a text");
    content += part["text"].get<std::string>();
  }
  return content;
}

std::vector<Message> Messages(const json* value) {
  if (value == nullptr || !value->is_array() || value->empty() || value->size() > kMostMessages) {
    Wrong("messages", "messages must be a list of 1 to ", kMostMessages, " messages");
  }
  std::vector<Message> messages;
  for (const json& one : *value) {
    if (!one.is_object() || !one.contains("role") || !one["role"].is_string() || !one.contains("content")) {
      Wrong("messages", "a message has a role and a content");
    }
    for (const auto& [name, field] : one.items()) {
      if (name != "role" && name != "content") Wrong("messages", "unknown field \"", name, "\" of a message");
    }
    const std::string role = one["role"].get<std::string>();
    messages.push_back({role == "developer" ? "system" : role, Content(one["content"])});  // OpenAI's newer name
  }
  return messages;
}

uint64_t DrawnSeed() {
  std::random_device device;
  return device();
}

// Reads the fields that texts and chats share.
void ReadOptions(Fields& fields, CompletionRequest& request) {
  request.model = fields.Text("model");
  Sampling& sampling = request.options.sampling;
  sampling.temperature = fields.Number("temperature", 1);
  sampling.top_p = fields.Number("top_p", 1);
  sampling.top_k = fields.Int("top_k", 1, kMostTokens);
  sampling.min_p = fields.Number("min_p", 0);
  if (const json* seed = fields.Find("seed"); seed == nullptr) {
    sampling.seed = DrawnSeed();
  } else if (seed->is_number_unsigned()) {
    sampling.seed = seed->get<uint64_t>();
  } else {
    Wrong("seed", "seed must be a whole number from 0 to 2^64 - 1, got ", seed->dump());
  }
  request.options.repetition.penalty = fields.Number("repetition_penalty", 1);
  request.options.repetition.ngram = fields.Int("no_repeat_ngram", 1, kMostNgram);
  request.n = fields.Int("n", 1, kMostChoices).value_or(1);
  if (const int64_t texts = request.n * static_cast<int64_t>(request.prompts.size()); texts > kMostTexts) {
    Wrong("n", "there are ", texts, " texts to write, at most ", kMostTexts, " are accepted");
  }
  request.stop = Strings("stop", fields.Find("stop"), kMostStops);
  for (const std::string& stop : request.stop) {
    if (stop.empty() || stop.size() > kMostStopBytes)
      Wrong("stop", "a stop string has 1 to ", kMostStopBytes, " bytes");
  }
  request.stream = fields.Flag("stream");
  if (const json* stream = fields.Find("stream_options"); stream != nullptr) {
    Fields of_stream(stream->dump());
    request.include_usage = of_stream.Flag("include_usage");
    of_stream.RefuseUnknown();
  }
  fields.NotOffered("frequency_penalty", 0);
  fields.NotOffered("presence_penalty", 0);
  fields.NotOffered("logit_bias", json::object());
  fields.Text("user");
}

}  // namespace

CompletionRequest ReadCompletion(const std::string& body) {
  Fields fields(body);
  CompletionRequest request;
  request.prompts = Prompts(fields.Find("prompt"));
  request.options.max_new_tokens = fields.Int("max_tokens", 1, kMostTokens).value_or(16);
  ReadOptions(fields, request);
  request.logprobs = fields.Int("logprobs", 0, kMostLikeliest);
  request.echo = fields.Flag("echo");
  if (request.echo && request.logprobs)
    Wrong("logprobs", "logprobs are those of new tokens, and not offered with echo");
  fields.NotOffered("best_of", request.n);
  fields.NotOffered("suffix", "");
  fields.RefuseUnknown();
  return request;
}

CompletionRequest ReadChat(const std::string& body) {
  Fields fields(body);
  CompletionRequest request;
  request.chat = true;
  request.prompts = {Messages(fields.Find("messages"))};
  const auto older = fields.Int("max_tokens", 1, kMostTokens);
  const auto most = fields.Int("max_completion_tokens", 1, kMostTokens);
  request.has_max_tokens = most || older;
  request.options.max_new_tokens = most.value_or(older.value_or(kAnswerTokens));
  ReadOptions(fields, request);
  const auto likeliest = fields.Int("top_logprobs", 0, kMostLikeliest);
  if (fields.Flag("logprobs")) {
    request.logprobs = likeliest.value_or(0);
  } else if (likeliest) {
    Wrong("top_logprobs", "top_logprobs needs logprobs");
  }
  fields.NotOffered("tools", json::array());
  fields.NotOffered("tool_choice", "none");
  fields.NotOffered("response_format", {{"type", "text"}});
  fields.RefuseUnknown();
  return request;
}

TextsRequest ReadTexts(const std::string& body, bool translates) {
  Fields fields(body);
  TextsRequest request;
  request.model = fields.Text("model");
  request.texts = Strings("texts", fields.Find("texts"), kMostPrompts);
  if (request.texts.empty()) Wrong("texts", "texts must be a string or a list of strings");
  for (const std::string& text : request.texts) {
    if (text.size() > kMostTextBytes) Wrong("texts", "a text has at most ", kMostTextBytes, " bytes");
  }
  if (translates) {
    request.translate.beams = fields.Int("beams", 1, kMostChoices).value_or(1);
    const int64_t rows = request.translate.beams * static_cast<int64_t>(request.texts.size());
    if (rows > kMostTexts)
      Wrong("beams", "there are ", rows, " beams of all texts, at most ", kMostTexts, " are accepted");
    request.translate.length_penalty = fields.Number("length_penalty", 1);
    request.translate.prefix = fields.Text("prefix");
  }
  fields.RefuseUnknown();
  return request;
}

HttpError ErrorOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kUnsupported:
      return {400, status.message(), "", ""};
    case StatusCode::kOutOfMemory:
      return {413, status.message(), "", "too_large"};
    case StatusCode::kUnavailable:
      return {503, status.message(), "", "overloaded"};
    default:
      return {500, status.message(), "", ""};
  }
}

}  // namespace seqlab::serve
