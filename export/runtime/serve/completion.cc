#include "completion.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "error.h"

namespace seqlab::serve {
namespace {

constexpr size_t kMostUnread = 8192;

template <typename T>
T Good(Result<T> result) {
  if (!result.ok()) throw ErrorOf(result.status());
  return std::move(*result);
}

Ids IdsOf(const Model& model, const Prompt& prompt) {
  if (const auto* text = std::get_if<std::string>(&prompt)) return Good(model.EncodePrompt(*text));
  if (const auto* chat = std::get_if<std::vector<Message>>(&prompt)) return Good(model.EncodeChat(*chat));
  return std::get<Ids>(prompt);
}

// The number of bytes at the end of a text with which a stop string may begin.
size_t Undecided(const std::string& text, const std::vector<std::string>& stops) {
  size_t most = 0;
  for (const std::string& stop : stops) {
    for (size_t length = std::min(stop.size() - 1, text.size()); length > most; --length) {
      if (text.compare(text.size() - length, length, stop, 0, length) == 0) most = length;
    }
  }
  return most;
}

}  // namespace

// What the engine's thread tells: it never waits for a client.
struct Completion::News {
  struct One {
    size_t choice;
    std::optional<NewToken> token;
    std::optional<Outcome> outcome;
  };
  // Returns false if the client is too far behind.
  bool Push(One one) {
    const std::lock_guard lock(mutex);
    too_slow = too_slow || all.size() >= kMostUnread;
    if (!too_slow || one.outcome) all.push_back(std::move(one));
    changed.notify_all();
    return !too_slow;
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<One> all;
  bool too_slow = false;
};

Completion::Completion(Engine& engine, const Model& model, const CompletionRequest& request,
                       std::shared_ptr<Timings> timings)
    : engine_(engine), model_(model), stops_(request.stop), news_(std::make_shared<News>()) {
  try {
    for (const Prompt& prompt : request.prompts) {
      const Ids ids = IdsOf(model, prompt);
      usage_.prompt_tokens += static_cast<int64_t>(ids.size());
      for (int64_t row = 0; row < request.n; ++row) {
        Request asked;
        asked.prompt = ids;
        asked.options = request.options;
        asked.options.stop_ids = model.info().stop_ids;
        if (const auto reach = model.info().max_seq_len; reach && !request.has_max_tokens) {
          const int64_t room = *reach - static_cast<int64_t>(ids.size());
          asked.options.max_new_tokens = std::clamp<int64_t>(room, 1, asked.options.max_new_tokens);
        }
        asked.row = row;
        asked.likeliest = request.logprobs;
        const size_t number = choices_.size();
        asked.on_token = [news = news_, number, clock = timings->Begin()](const NewToken& token) mutable {
          clock.Token();
          return news->Push({number, token, std::nullopt});
        };
        asked.on_end = [news = news_, number](const Outcome& outcome) { news->Push({number, std::nullopt, outcome}); };
        TextPieces pieces(model);
        std::string text;
        if (request.echo) {
          for (const int64_t token : ids) text += Good(pieces.Push(token));
        }
        const uint64_t id = Good(engine.Submit(std::move(asked)));
        choices_.push_back({id, std::move(text), std::move(pieces), row == 0, "", false});
        ++open_;
      }
    }
  } catch (const HttpError&) {
    for (Choice& choice : choices_) End(choice);
    throw;
  }
}

Completion::~Completion() {
  for (Choice& choice : choices_) End(choice);
}

void Completion::End(Choice& choice) {
  if (choice.ended) return;
  choice.ended = true;
  --open_;
  engine_.Cancel(choice.id);
}

std::vector<Piece> Completion::Next(std::chrono::milliseconds most) {
  std::deque<News::One> all;
  {
    std::unique_lock lock(news_->mutex);
    news_->changed.wait_for(lock, most, [&] { return !news_->all.empty(); });
    all.swap(news_->all);
  }
  std::vector<Piece> pieces;
  for (const News::One& one : all) {
    Choice& choice = choices_[one.choice];
    if (choice.ended) continue;
    Piece piece;
    piece.choice = one.choice;
    if (one.token) {
      // A prompt is counted once, and so is what was known of it.
      if (++choice.new_tokens == 1 && choice.is_first) usage_.cached_tokens += one.token->cached_tokens;
      ++usage_.new_tokens;
      piece.text = Shown(choice, Good(choice.pieces.Push(one.token->id)), false);
      if (choice.ended) piece.finish = "stop";
      if (one.token->log_probability) {
        TokenFacts facts{TextOf(one.token->id), *one.token->log_probability, {}};
        for (const auto& [id, known] : one.token->likeliest) facts.likeliest.emplace_back(TextOf(id), known);
        piece.tokens.push_back(std::move(facts));
      }
    } else {
      if (!one.outcome->status.ok()) throw ErrorOf(one.outcome->status);
      piece.text = Shown(choice, Good(choice.pieces.Finish()), true);
      piece.finish = choice.ended || one.outcome->finish == Finish::kStop ? "stop" : "length";
      if (one.outcome->finish == Finish::kCancelled) {
        throw HttpError{408, Join("the client is ", kMostUnread, " tokens behind"), "", "timeout"};
      }
      End(choice);
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

std::string Completion::TextOf(int64_t token) const {
  return model_.info().has_tokenizer ? Good(model_.TokenBytes(token)) : std::to_string(token);
}

std::string Completion::Shown(Choice& choice, const std::string& text, bool last) {
  std::string whole = std::move(choice.held) + text;
  choice.held.clear();
  size_t cut = std::string::npos;
  for (const std::string& stop : stops_) cut = std::min(cut, whole.find(stop));
  if (cut != std::string::npos) {
    End(choice);
    return whole.substr(0, cut);
  }
  if (last) return whole;
  const size_t kept = whole.size() - Undecided(whole, stops_);
  choice.held = whole.substr(kept);
  return whole.substr(0, kept);
}

}  // namespace seqlab::serve
