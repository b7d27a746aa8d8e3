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
constexpr size_t kMostStopBytes = 256, kMostTextBytes = 32768;

template <typename... Parts>
[[noreturn]] void Wrong(const std::string& field, const Parts&... parts) {
  throw HttpError{400, Join(parts...), field, ""};
}

// The fields of a body, each of which must be asked for.
class Fields {
 public:
  explicit Fields(const std::string& body) {
    body_ = Parsed(body);
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

std::vector<std::variant<std::string, Ids>> Prompts(const json* value) {
  std::vector<std::variant<std::string, Ids>> prompts;
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

uint64_t DrawnSeed() {
  std::random_device device;
  return device();
}

}  // namespace

json Parsed(const std::string& body) { return IsTooDeep(body) ? json() : json::parse(body, nullptr, false); }

CompletionRequest ReadCompletion(const std::string& body) {
  constexpr int64_t kMost = int64_t{1} << 31;
  Fields fields(body);
  CompletionRequest request;
  request.model = fields.Text("model");
  request.prompts = Prompts(fields.Find("prompt"));
  request.options.max_new_tokens = fields.Int("max_tokens", 1, kMost).value_or(16);
  Sampling& sampling = request.options.sampling;
  sampling.temperature = fields.Number("temperature", 1);
  sampling.top_p = fields.Number("top_p", 1);
  sampling.top_k = fields.Int("top_k", 1, kMost);
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
  request.logprobs = fields.Int("logprobs", 0, kMostLikeliest);
  request.echo = fields.Flag("echo");
  request.stream = fields.Flag("stream");
  if (const json* stream = fields.Find("stream_options"); stream != nullptr) {
    Fields of_stream(stream->dump());
    request.include_usage = of_stream.Flag("include_usage");
    of_stream.RefuseUnknown();
  }
  fields.NotOffered("best_of", request.n);
  fields.NotOffered("frequency_penalty", 0);
  fields.NotOffered("presence_penalty", 0);
  fields.NotOffered("logit_bias", json::object());
  fields.NotOffered("suffix", "");
  fields.Text("user");
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
