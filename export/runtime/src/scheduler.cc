#include "scheduler.h"

#include <algorithm>
#include <numeric>

#include "error.h"
#include "generate.h"
#include "joined_state.h"
#include "sampling.h"

namespace seqlab {
namespace {

constexpr int64_t kMostNewTokens = int64_t{1} << 31;

// Returns the token that follows, with what the request wants to know of it.
NewToken Next(const Logits& logits, int64_t row, const LiveText& text) {
  const GenerateOptions& options = text.request.options;
  NewToken token;
  if (options.sampling.temperature == 0 && IsFree(options.repetition)) {
    token.id = ChooseLargest(logits.Row(row), logits.vocab_size);
  } else {
    token.id = Chosen(logits.Doubles(row), options, text.ids, text.outcome.new_tokens, text.request.row);
  }
  if (!text.request.likeliest) return token;
  std::vector<double> known = logits.Doubles(row);
  LogSoftmax(known);
  token.log_probability = known[static_cast<size_t>(token.id)];
  std::vector<int64_t> order(known.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto kept = order.begin() + std::min<int64_t>(*text.request.likeliest, logits.vocab_size);
  std::partial_sort(order.begin(), kept, order.end(),
                    [&](int64_t a, int64_t b) { return known[a] != known[b] ? known[a] > known[b] : a < b; });
  for (auto id = order.begin(); id != kept; ++id) token.likeliest.emplace_back(*id, known[*id]);
  return token;
}

}  // namespace

LiveText::LiveText(Request asked) : request(std::move(asked)), ids(std::move(request.prompt)) {
  source = static_cast<int64_t>(request.source.size());
  outcome.prompt_tokens = static_cast<int64_t>(ids.size());
  // The model never reads the last new token.
  longest = outcome.prompt_tokens + request.options.max_new_tokens - 1;
}

void LiveText::End(Finish finish) {
  ended = true;
  outcome.finish = finish;
  if (request.on_end) (void)Guarded([&] { request.on_end(outcome); });
}

Scheduler::Scheduler(const Bundle& bundle, const EngineOptions& options)
    : bundle_(bundle), options_(options), reader_(bundle), batch_(bundle), prefixes_(options.prefix_memory) {
  CheckHasRows(bundle.manifest);
}

void Scheduler::Check(const Request& request) const {
  CheckOptions(request.options.sampling);
  CheckOptions(request.options.repetition);
  Padded({request.prompt}, "prompt", true);
  CheckLengths(bundle_.manifest, {request.prompt}, request.options.max_new_tokens);
  if (request.options.max_new_tokens > kMostNewTokens) {
    Refuse("max_new_tokens must be at most 2^31, got ", request.options.max_new_tokens);
  }
  reader_.CheckReadable(request.prompt, static_cast<int64_t>(request.prompt.size()));
  if (request.row < 0 || request.row > UINT32_MAX) Refuse("row must be from 0 to 2^32 - 1, got ", request.row);
  if (request.likeliest && *request.likeliest < 0) Refuse("likeliest must be at least 0, got ", *request.likeliest);
  if (bundle_.encoder != nullptr) {
    Padded({request.source}, "source", false);
    const auto length = static_cast<int64_t>(request.source.size());
    if (const auto most = bundle_.manifest.max_source_len; most && length > *most) {
      Refuse("a source has ", length, " tokens, this bundle reads at most ", *most);
    }
  } else if (!request.source.empty()) {
    Refuse(bundle_.folder.string(), " is the bundle of a language model, which reads no source");
  }
}

int64_t Scheduler::BytesWith(const LiveText* more) const {
  int64_t longest = 0, source = 0;
  const auto widen = [&](const LiveText& text) {
    longest = std::max(longest, text.longest);
    source = std::max(source, text.source);
  };
  for (const LiveTexts* texts : {&reading_, &running_}) {
    for (const auto& text : *texts) widen(*text);
  }
  if (more != nullptr) widen(*more);
  // A step writes new values beside the old ones, and rows are copied when others come and go.
  return 2 * BytesOf(bundle_.manifest, size() + (more != nullptr ? 1 : 0), longest, source);
}

void Scheduler::Cancel(const std::function<bool(const LiveText&)>& is_cancelled) {
  for (LiveTexts* texts : {&reading_, &running_}) {
    for (const auto& text : *texts) {
      if (is_cancelled(*text)) End(*text, Finish::kCancelled);
    }
  }
  reading_.erase(std::remove_if(reading_.begin(), reading_.end(), [](const auto& text) { return text->ended; }),
                 reading_.end());
  DropEnded();
}

void Scheduler::FailAll(const Status& status) {
  for (LiveTexts* texts : {&reading_, &running_}) {
    for (const auto& text : *texts) {
      if (!text->ended) Fail(*text, status);
    }
    texts->clear();
  }
  batch_.Resume({}, 0, 0);
}

void Scheduler::DropEnded() {
  const auto last = std::remove_if(running_.begin(), running_.end(), [](const auto& text) { return text->ended; });
  rows_changed_ = rows_changed_ || last != running_.end();
  running_.erase(last, running_.end());
}

void Scheduler::Advance() {
  for (int64_t left = options_.chunk; left > 0 && !reading_.empty();) left -= Read(left);
  const Status status = Guarded([&] { Step(); });
  if (!status.ok()) {
    for (const auto& text : running_) {
      if (!text->ended) Fail(*text, status);
    }
  }
  DropEnded();
  if (running_.empty()) batch_.Resume({}, 0, 0);
}

int64_t Scheduler::Read(int64_t most) {
  LiveTexts texts = TakeShort(most);
  if (texts.size() > 1) {
    int64_t count = 0;
    const Status status = Guarded([&] { ReadTogether(texts); });
    for (auto& text : texts) {
      count += text->outcome.prompt_tokens;
      if (!status.ok() && !text->ended) Fail(*text, status);
      Continue(std::move(text));
    }
    return count;
  }
  if (texts.empty()) {
    texts.push_back(std::move(reading_.front()));
    reading_.pop_front();
  }
  std::unique_ptr<LiveText> text = std::move(texts.front());
  int64_t count = 0;
  if (const Status status = Guarded([&] { count = ReadChunk(*text); }); !status.ok()) {
    Fail(*text, status);
  } else if (text->read < text->outcome.prompt_tokens) {
    reading_.push_back(std::move(text));
  } else {
    Continue(std::move(text));
  }
  return count;
}

LiveTexts Scheduler::TakeShort(int64_t most) {
  LiveTexts texts;
  int64_t longest = 0;
  while (!reading_.empty() && bundle_.encoder == nullptr) {
    const LiveText& text = *reading_.front();
    longest = std::max(longest, text.outcome.prompt_tokens);
    // The shorter are padded to the longest.
    const int64_t padded = longest * static_cast<int64_t>(texts.size() + 1);
    if (text.read > 0 || longest > options_.chunk || (!texts.empty() && padded > most)) break;
    texts.push_back(std::move(reading_.front()));
    reading_.pop_front();
  }
  return texts;
}

void Scheduler::ReadTogether(LiveTexts& texts) {
  std::vector<Ids> prompts;
  for (const auto& text : texts) prompts.push_back(text->ids);
  const Logits logits = reader_.Prefill(prompts);
  const auto state = std::make_shared<std::vector<Value>>(reader_.TakeState());
  int64_t row = 0;
  for (const auto& text : texts) {
    text->state = state;
    text->row = row++;
    text->read = text->outcome.prompt_tokens;
    const Status status = Guarded([&] { Choose(*text, logits, text->row); });
    if (!status.ok()) Fail(*text, status);
  }
}

void Scheduler::Continue(std::unique_ptr<LiveText> text) {
  if (text->ended) return;
  running_.push_back(std::move(text));
  rows_changed_ = true;
}

int64_t Scheduler::ReadChunk(LiveText& text) {
  if (text.read == 0) Begin(text);
  const int64_t first = text.read;
  int64_t last = (first / options_.chunk + 1) * options_.chunk;
  if (first == 0) last = std::max(last, bundle_.manifest.first_call);
  last = std::min(last, text.outcome.prompt_tokens);
  reader_.Resume(std::move(*text.state), 1, first);
  const Logits logits = reader_.Extend({text.ids.begin() + first, text.ids.begin() + last});
  *text.state = reader_.TakeState();
  text.read = last;
  if (last == text.outcome.prompt_tokens) {
    Choose(text, logits, 0);
  } else {
    KeepPrefix(text);
  }
  return last - first;
}

void Scheduler::Begin(LiveText& text) {
  if (bundle_.encoder == nullptr && BeginWithPrefix(text)) return;
  if (bundle_.encoder != nullptr) {
    const Rows source = Padded({text.request.source}, "source", false);
    reader_.ReadSource(source.Tokens(), source.Mask());
  }
  reader_.Start(1);
  text.state = std::make_shared<std::vector<Value>>(reader_.TakeState());
  for (size_t entry = 0; entry < text.state->size(); ++entry) {
    const int64_t axis = bundle_.manifest.state[entry].Axis("M");
    if (axis > 0) text.source = Dims((*text.state)[entry])[static_cast<size_t>(axis)];
  }
}

bool Scheduler::BeginWithPrefix(LiveText& text) {
  if (options_.prefix_memory == 0) return false;
  text.prefixes = PrefixKeys(text.ids, options_.chunk);
  if (prefixes_.empty()) return false;
  for (auto count = static_cast<int64_t>(text.prefixes.size()); count > 0; --count) {
    const std::vector<Value>* known = prefixes_.Find(text.prefixes[static_cast<size_t>(count - 1)]);
    if (known == nullptr) continue;
    const int64_t length = count * options_.chunk;
    text.state = std::make_shared<std::vector<Value>>(Joined(bundle_.manifest, {{known, 0, length, 0}}));
    text.read = text.outcome.cached_tokens = length;
    return true;
  }
  return false;
}

void Scheduler::KeepPrefix(const LiveText& text) {
  const int64_t count = text.read / options_.chunk;
  const bool has_key = text.read % options_.chunk == 0 && count <= static_cast<int64_t>(text.prefixes.size());
  const int64_t bytes = BytesOf(bundle_.manifest, 1, text.read, 0);
  if (!has_key || !prefixes_.Fits(bytes)) return;
  prefixes_.Keep(text.prefixes[static_cast<size_t>(count - 1)],
                 Joined(bundle_.manifest, {{text.state.get(), 0, text.read, 0}}), bytes);
  stats_.prefix_memory = prefixes_.bytes();
}

void Scheduler::Step() {
  if (running_.empty()) return;
  if (rows_changed_) Join();
  Ids last;
  for (const auto& text : running_) last.push_back(text->ids.back());
  const Logits logits = batch_.Step(last);
  ++stats_.steps;
  for (const auto& text : running_) {
    ++text->read;
    const Status status = Guarded([&] { Choose(*text, logits, text->row); });
    if (!status.ok()) Fail(*text, status);
  }
}

void Scheduler::Join() {
  const std::vector<Value> before = batch_.TakeState();
  std::vector<StateRow> rows;
  int64_t longest = 0;
  for (const auto& text : running_) {
    const std::vector<Value>* state = text->state != nullptr ? text->state.get() : &before;
    rows.push_back({state, text->row, text->read, text->source});
    longest = std::max(longest, text->read);
  }
  batch_.Resume(Joined(bundle_.manifest, rows), static_cast<int64_t>(rows.size()), longest);
  int64_t row = 0;
  for (const auto& text : running_) {
    text->state.reset();
    text->row = row++;
  }
  rows_changed_ = false;
}

void Scheduler::Choose(LiveText& text, const Logits& logits, int64_t row) {
  NewToken token = Next(logits, row, text);
  token.cached_tokens = text.outcome.cached_tokens;
  text.ids.push_back(token.id);
  ++text.outcome.new_tokens;
  ++stats_.new_tokens;
  const GenerateOptions& asked = text.request.options;
  if (text.request.on_token && !text.request.on_token(token)) {
    End(text, Finish::kCancelled);
  } else if (std::count(asked.stop_ids.begin(), asked.stop_ids.end(), token.id) > 0) {
    End(text, Finish::kStop);
  } else if (text.outcome.new_tokens == asked.max_new_tokens) {
    End(text, Finish::kLength);
  }
}

void Scheduler::Fail(LiveText& text, const Status& status) {
  text.outcome.status = status;
  End(text, Finish::kFailed);
}

void Scheduler::End(LiveText& text, Finish finish) {
  ++(finish == Finish::kCancelled ? stats_.cancelled : finish == Finish::kFailed ? stats_.failed : stats_.finished);
  stats_.prompt_tokens += text.outcome.prompt_tokens;
  stats_.cached_tokens += text.outcome.cached_tokens;
  text.End(finish);
}

}  // namespace seqlab
