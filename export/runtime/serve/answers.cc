#include "answers.h"

#include <algorithm>
#include <atomic>
#include <random>

#include "error.h"
#include "json_text.h"

namespace seqlab::serve {
namespace {

using nlohmann::json;

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string NewId(bool chat) {
  static const uint64_t process = std::random_device()();
  static std::atomic<int64_t> count{0};
  return Join(chat ? "chatcmpl-" : "cmpl-", process, "-", ++count);
}

int64_t Characters(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

json OrNull(const std::string& text) { return text.empty() ? json() : json(text); }

// A token of a chat, which need not be UTF-8 alone.
json ChatToken(const std::string& text, double log_probability) {
  const auto* first = reinterpret_cast<const unsigned char*>(text.data());
  const std::vector<unsigned char> bytes(first, first + text.size());
  return {{"token", text}, {"logprob", log_probability}, {"bytes", bytes}};
}

json OfChat(const std::vector<TokenFacts>& tokens) {
  json content = json::array();
  for (const TokenFacts& token : tokens) {
    json likeliest = json::array();
    for (const auto& [text, known] : token.likeliest) likeliest.push_back(ChatToken(text, known));
    content.push_back(ChatToken(token.text, token.log_probability));
    content.back()["top_logprobs"] = likeliest;
  }
  return {{"content", content}};
}

}  // namespace

json ErrorBody(const HttpError& error) {
  const char* type = error.status == 401   ? "authentication_error"
                     : error.status >= 500 ? "server_error"
                                           : "invalid_request_error";
  return {{"error",
           {{"message", error.message}, {"type", type}, {"param", OrNull(error.param)}, {"code", OrNull(error.code)}}}};
}

json ModelBody(const Served& served) {
  return {{"id", served.name}, {"object", "model"}, {"created", 0}, {"owned_by", "seqlab"}};
}

json ModelsBody(const std::vector<std::shared_ptr<Served>>& all) {
  json models = json::array();
  for (const auto& served : all) models.push_back(ModelBody(*served));
  return {{"object", "list"}, {"data", models}};
}

json TextsBody(Served& served, const TextsRequest& request, const std::string& path,
               const std::function<void()>& look) {
  const Info& info = served.model.info();
  const bool translates = path == "/translate";
  if (translates != info.reads_source || (!translates && info.decodes)) {
    throw HttpError{400, Join("model ", served.name, " does not answer ", path), "model", ""};
  }
  std::unique_lock lock(served.one_at_a_time, std::defer_lock);
  while (!lock.try_lock_for(std::chrono::milliseconds(100))) look();
  Session session(served.model);
  json answers = json::array();
  if (translates) {
    auto found = session.Translate(request.texts, request.translate);
    if (!found.ok()) throw ErrorOf(found.status());
    for (const auto& best : *found) answers.push_back({{"text", best[0].text}, {"score", best[0].hypothesis.score}});
    return {{"model", served.name}, {"translations", answers}};
  }
  for (const std::string& text : request.texts) {
    look();
    const Result<Classes> classes = session.Classify(text);
    if (!classes.ok()) throw ErrorOf(classes.status());
    const bool tags = !classes->words.empty();
    if (tags != (path == "/tag")) {
      throw HttpError{400, Join("model ", served.name, " answers ", tags ? "/tag" : "/classify"), "model", ""};
    }
    const json rows = tools::LabelsOf(*classes, info.labels);
    answers.push_back(tags ? rows : rows[0]);
  }
  return {{"model", served.name}, {path == "/tag" ? "tags" : "classes", answers}};
}

CompletionAnswer::CompletionAnswer(std::shared_ptr<Served> served, const CompletionRequest& request)
    : served_(std::move(served)),
      request_(request),
      id_(NewId(request.chat)),
      created_(Now()),
      completion_(*served_->engine, served_->model, request_, served_->timings),
      choices_(completion_.size()) {
  for (size_t number = 0; number < choices_.size(); ++number) {
    choices_[number].offset = Characters(completion_.prompt(number));
  }
}

void CompletionAnswer::Wait(std::chrono::milliseconds most) {
  for (Piece& piece : completion_.Next(most)) {
    Choice& choice = choices_[piece.choice];
    choice.text += piece.text;
    choice.finish = piece.finish;
    std::move(piece.tokens.begin(), piece.tokens.end(), std::back_inserter(choice.tokens));
  }
}

json CompletionAnswer::Envelope(const char* of_chat) const {
  return {{"id", id_},
          {"object", request_.chat ? of_chat : "text_completion"},
          {"created", created_},
          {"model", served_->name},
          {"seed", request_.options.sampling.seed}};
}

json CompletionAnswer::UsageBody() const {
  const Usage& usage = completion_.usage();
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.new_tokens},
          {"total_tokens", usage.prompt_tokens + usage.new_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

json CompletionAnswer::LogProbabilities(const std::vector<TokenFacts>& tokens, int64_t& offset) const {
  if (!request_.logprobs) return nullptr;
  if (request_.chat) return OfChat(tokens);
  json texts = json::array(), own = json::array(), likeliest = json::array(), offsets = json::array();
  for (const TokenFacts& token : tokens) {
    texts.push_back(token.text);
    own.push_back(token.log_probability);
    json others = json::object();
    // Different tokens may have the same text: the likeliest stands for it.
    for (const auto& [text, known] : token.likeliest) others.emplace(text, known);
    others.emplace(token.text, token.log_probability);
    likeliest.push_back(others);
    offsets.push_back(offset);
    offset += Characters(token.text);
  }
  return {{"tokens", texts}, {"token_logprobs", own}, {"top_logprobs", likeliest}, {"text_offset", offsets}};
}

json CompletionAnswer::Body() const {
  json body = Envelope("chat.completion");
  for (size_t number = 0; number < choices_.size(); ++number) {
    const Choice& choice = choices_[number];
    int64_t offset = choice.offset;
    json said = {
        {"index", number}, {"logprobs", LogProbabilities(choice.tokens, offset)}, {"finish_reason", choice.finish}};
    if (request_.chat) {
      said["message"] = {{"role", "assistant"}, {"content", choice.text}};
    } else {
      said["text"] = completion_.prompt(number) + choice.text;
    }
    body["choices"].push_back(said);
  }
  body["usage"] = UsageBody();
  return body;
}

std::string CompletionAnswer::Events(std::chrono::milliseconds most) {
  std::string events;
  const auto send = [&](const json& choices, const json& usage) {
    json body = Envelope("chat.completion.chunk");
    body["choices"] = choices;
    if (!usage.is_null()) body["usage"] = usage;
    events += Join("data: ", tools::Dumped(body), "\n\n");
  };
  const auto add = [&](size_t number, const json& said, const json& known, const std::string& finish) {
    json choice = {{"index", number}, {"logprobs", known}, {"finish_reason", OrNull(finish)}};
    choice[request_.chat ? "delta" : "text"] = said;
    send(json::array({choice}), nullptr);
  };
  for (size_t number = 0; !begun_ && number < choices_.size(); ++number) {
    if (request_.chat) add(number, {{"role", "assistant"}, {"content", ""}}, nullptr, "");
    if (request_.echo) add(number, completion_.prompt(number), nullptr, "");
  }
  begun_ = true;
  for (const Piece& piece : completion_.Next(most)) {
    if (piece.text.empty() && piece.tokens.empty() && piece.finish.empty()) continue;
    const json said = request_.chat ? json{{"content", piece.text}} : json(piece.text);
    add(piece.choice, said, LogProbabilities(piece.tokens, choices_[piece.choice].offset), piece.finish);
  }
  if (done() && request_.include_usage) send(json::array(), UsageBody());
  return events;
}

}  // namespace seqlab::serve
