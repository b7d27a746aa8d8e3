// The scheduler: reads prompts in chunks and steps all texts together, in a thread of its own.
#include "seqlab/engine.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include "bundle.h"
#include "decoder.h"
#include "error.h"
#include "generate.h"
#include "joined_state.h"
#include "prefix_cache.h"
#include "sampling.h"

namespace seqlab {

// A request in the engine.
struct LiveText {
  uint64_t id = 0;
  Request request;
  Ids ids;                   // the prompt and the new tokens
  int64_t read = 0;          // number of these that the state has read
  int64_t longest = 0;       // number that it will have read at the end
  int64_t source = 0;        // length of the source in the state
  std::vector<Value> state;  // its own while the prompt is read, then row `row` of the batch's
  int64_t row = -1;
  bool ended = false;
  Outcome outcome;
};
using LiveTexts = std::deque<std::unique_ptr<LiveText>>;

namespace {

// Returns the token that follows, with what the request wants to know of it.
NewToken Next(const Logits& logits, int64_t row, const LiveText& text) {
  const GenerateOptions& options = text.request.options;
  NewToken token;
  if (options.sampling.temperature == 0 && IsFree(options.repetition)) {
    token.id = ChooseLargest(logits.Row(row), logits.vocab_size);
  } else {
    token.id = Chosen(logits.Doubles(row), options, text.ids, text.outcome.new_tokens, text.request.row);
  }
  if (text.request.likeliest) {
    std::vector<double> known = logits.Doubles(row);
    LogSoftmax(known);
    token.log_probability = known[static_cast<size_t>(token.id)];
    std::vector<int64_t> order(known.size());
    std::iota(order.begin(), order.end(), int64_t{0});
    const auto kept = order.begin() + std::min<int64_t>(*text.request.likeliest, logits.vocab_size);
    std::partial_sort(order.begin(), kept, order.end(),
                      [&](int64_t a, int64_t b) { return known[a] != known[b] ? known[a] > known[b] : a < b; });
    for (auto id = order.begin(); id != kept; ++id) token.likeliest.emplace_back(*id, known[*id]);
  }
  return token;
}

void CheckBounds(const EngineOptions& options) {
  const std::pair<const char*, int64_t> bounds[] = {{"memory", options.memory},
                                                    {"max_running", options.max_running},
                                                    {"max_waiting", options.max_waiting},
                                                    {"chunk", options.chunk}};
  for (const auto& [name, value] : bounds) {
    if (value < 1) Refuse(name, " must be at least 1, got ", value);
  }
  if (options.prefix_memory < 0) Refuse("prefix_memory must be at least 0, got ", options.prefix_memory);
}

}  // namespace

struct Engine::Impl {
  Impl(std::shared_ptr<const Bundle> opened, const EngineOptions& given)
      : bundle(std::move(opened)), options(given), reader(*bundle), batch(*bundle), prefixes(given.prefix_memory) {
    CheckBounds(options);
    CheckHasRows(manifest());
    if (bundle->options.provider != "cpu") {
      Refuse(StatusCode::kUnsupported, "an engine runs on the CPU; open the bundle with the provider cpu");
    }
    thread = std::thread([this] { Loop(); });
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      accepting = false;
      stopping = true;
    }
    changed.notify_all();
    thread.join();
  }

  const Manifest& manifest() const { return bundle->manifest; }

  uint64_t Submit(Request request) {
    auto text = std::make_unique<LiveText>();
    Check(request);
    text->ids = request.prompt;
    text->source = static_cast<int64_t>(request.source.size());
    text->outcome.prompt_tokens = static_cast<int64_t>(request.prompt.size());
    // The model never reads the last new token.
    text->longest = text->outcome.prompt_tokens + request.options.max_new_tokens - 1;
    text->request = std::move(request);
    if (const int64_t bytes = BytesOf(manifest(), 1, text->longest, text->source); bytes > options.memory) {
      Refuse(StatusCode::kOutOfMemory, "the state of a text of ", text->longest, " tokens takes ", bytes,
             " bytes, the engine may hold ", options.memory);
    }
    const std::lock_guard lock(mutex);
    if (!accepting) Refuse(StatusCode::kUnavailable, "the engine accepts no more requests");
    if (static_cast<int64_t>(waiting.size()) >= options.max_waiting) {
      Refuse(StatusCode::kUnavailable, waiting.size(), " requests are waiting, which is the most; try again later");
    }
    text->id = ++last_id;
    waiting.push_back(std::move(text));
    changed.notify_all();
    return last_id;
  }

  void Check(const Request& request) const {
    CheckOptions(request.options.sampling);
    CheckOptions(request.options.repetition);
    Padded({request.prompt}, "prompt", true);
    CheckLengths(manifest(), {request.prompt}, request.options.max_new_tokens);
    reader.CheckReadable(request.prompt, static_cast<int64_t>(request.prompt.size()));
    if (request.row < 0 || request.row > UINT32_MAX) Refuse("row must be from 0 to 2^32 - 1, got ", request.row);
    if (request.likeliest && *request.likeliest < 0) {
      Refuse("likeliest must be at least 0, got ", *request.likeliest);
    }
    if (bundle->encoder != nullptr) {
      Padded({request.source}, "source", false);
      const auto length = static_cast<int64_t>(request.source.size());
      if (const auto most = manifest().max_source_len; most && length > *most) {
        Refuse("a source has ", length, " tokens, this bundle reads at most ", *most);
      }
    } else if (!request.source.empty()) {
      Refuse(bundle->folder.string(), " is the bundle of a language model, which reads no source");
    }
  }

  void Loop() {
    while (true) {
      LiveTexts ended;
      {
        std::unique_lock lock(mutex);
        stats.running = static_cast<int64_t>(reading.size() + running.size());
        if (stats.running == 0) stats.memory = 0;
        idle.notify_all();
        changed.wait(lock, [&] { return stopping || !waiting.empty() || !reading.empty() || !running.empty(); });
        if (stopping && waiting.empty() && reading.empty() && running.empty()) return;
        for (LiveTexts* texts : {&waiting, &reading, &running}) RemoveCancelled(*texts, ended);
        cancelled.clear();
        Admit();
      }
      for (const auto& text : ended) End(*text, Finish::kCancelled);
      Read();
      Step();
    }
  }

  void RemoveCancelled(LiveTexts& texts, LiveTexts& ended) {
    for (auto text = texts.begin(); text != texts.end();) {
      if (!stopping && cancelled.count((*text)->id) == 0) {
        ++text;
        continue;
      }
      rows_changed = rows_changed || &texts == &running;
      ended.push_back(std::move(*text));
      text = texts.erase(text);
    }
  }

  // Takes from the queue what may run.
  void Admit() {
    int64_t longest = 0, source = 0;
    for (const LiveTexts* texts : {&reading, &running}) {
      for (const auto& text : *texts) Widen(*text, longest, source);
    }
    while (!waiting.empty()) {
      const auto rows = static_cast<int64_t>(reading.size() + running.size()) + 1;
      Widen(*waiting.front(), longest, source);
      const int64_t bytes = BytesOf(manifest(), rows, longest, source);
      // A text that fits alone runs alone at least.
      if (rows > 1 && (rows > options.max_running || bytes > options.memory)) break;
      stats.memory = bytes;
      reading.push_back(std::move(waiting.front()));
      waiting.pop_front();
    }
    stats.running = static_cast<int64_t>(reading.size() + running.size());
  }

  static void Widen(const LiveText& text, int64_t& longest, int64_t& source) {
    longest = std::max(longest, text.longest);
    source = std::max(source, text.source);
  }

  // Reads a chunk of the prompts: each takes its turn.
  void Read() {
    for (int64_t left = options.chunk; left > 0 && !reading.empty();) {
      std::unique_ptr<LiveText> text = std::move(reading.front());
      reading.pop_front();
      const Status status = Guarded([&] { left -= ReadChunk(*text); });
      if (!status.ok()) {
        Fail(*text, status);
      } else if (text->read < text->outcome.prompt_tokens) {
        reading.push_back(std::move(text));
      } else if (!text->ended) {
        running.push_back(std::move(text));
        rows_changed = true;
      }
    }
  }

  // Reads up to the next multiple of the chunk, and returns the number of tokens read. After the last it chooses the
  // first new token.
  int64_t ReadChunk(LiveText& text) {
    const int64_t length = text.outcome.prompt_tokens;
    if (text.read == 0) Begin(text);
    const int64_t first = text.read;
    const int64_t end =
        text.read == 0 ? std::max(options.chunk, manifest().first_call) : (first / options.chunk + 1) * options.chunk;
    const int64_t last = std::min(end, length);
    reader.Resume(std::move(text.state), 1, first);
    const Logits logits = reader.Extend({text.ids.begin() + first, text.ids.begin() + last});
    text.state = reader.TakeState();
    text.read = last;
    if (last == length) {
      Choose(text, logits, 0);
    } else {
      KeepPrefix(text);
    }
    return last - first;
  }

  // Begins a text with its source, or with the longest prefix that is known.
  void Begin(LiveText& text) {
    if (bundle->encoder != nullptr) {
      const Rows source = Padded({text.request.source}, "source", false);
      reader.ReadSource(source.Tokens(), source.Mask());
    }
    reader.Start(1);
    text.state = reader.TakeState();
    for (size_t entry = 0; entry < text.state.size(); ++entry) {
      const int64_t axis = manifest().state[entry].Axis("M");
      if (axis > 0) text.source = Dims(text.state[entry])[static_cast<size_t>(axis)];
    }
    if (bundle->encoder != nullptr) return;
    // A token at least is read, to have logits after it.
    for (int64_t length = (text.outcome.prompt_tokens - 1) / options.chunk * options.chunk; length > 0;
         length -= options.chunk) {
      const std::vector<Value>* known = prefixes.Find(text.ids, length);
      if (known == nullptr) continue;
      text.state = Joined(manifest(), {{known, 0, length, 0}});
      text.read = text.outcome.cached_tokens = length;
      break;
    }
  }

  void KeepPrefix(const LiveText& text) {
    const int64_t bytes = BytesOf(manifest(), 1, text.read, 0);
    if (bundle->encoder != nullptr || text.read % options.chunk != 0 || !prefixes.Fits(bytes)) return;
    prefixes.Keep(text.ids, text.read, Joined(manifest(), {{&text.state, 0, text.read, 0}}), bytes);
  }

  // Reads the last token of every text and chooses the next.
  void Step() {
    const Status status = Guarded([&] { JoinAndStep(); });
    if (!status.ok()) {
      for (const auto& text : running) {
        if (!text->ended) Fail(*text, status);
      }
    }
    const auto last = std::remove_if(running.begin(), running.end(), [](const auto& text) { return text->ended; });
    rows_changed = rows_changed || last != running.end();
    running.erase(last, running.end());
  }

  void JoinAndStep() {
    if (running.empty()) {
      batch.Resume({}, 0, 0);
      return;
    }
    if (rows_changed) Join();
    Ids last;
    for (const auto& text : running) last.push_back(text->ids.back());
    const Logits logits = batch.Step(last);
    for (const auto& text : running) {
      ++text->read;
      const Status status = Guarded([&] { Choose(*text, logits, text->row); });
      if (!status.ok()) Fail(*text, status);
    }
    const std::lock_guard lock(mutex);
    ++stats.steps;
  }

  // Makes the running texts the rows of the batch.
  void Join() {
    const std::vector<Value> before = batch.TakeState();
    std::vector<StateRow> rows;
    int64_t longest = 0;
    for (const auto& text : running) {
      const bool joins = text->row < 0;
      rows.push_back({joins ? &text->state : &before, joins ? 0 : text->row, text->read, text->source});
      longest = std::max(longest, text->read);
    }
    batch.Resume(Joined(manifest(), rows), static_cast<int64_t>(rows.size()), longest);
    int64_t row = 0;
    for (const auto& text : running) {
      text->state.clear();
      text->row = row++;
    }
    rows_changed = false;
  }

  // Chooses a text's next token, and ends the text if it was the last.
  void Choose(LiveText& text, const Logits& logits, int64_t row) {
    const NewToken token = Next(logits, row, text);
    text.ids.push_back(token.id);
    ++text.outcome.new_tokens;
    {
      const std::lock_guard lock(mutex);
      ++stats.new_tokens;
    }
    const GenerateOptions& asked = text.request.options;
    if (text.request.on_token && !text.request.on_token(token)) {
      End(text, Finish::kCancelled);
    } else if (std::count(asked.stop_ids.begin(), asked.stop_ids.end(), token.id) > 0) {
      End(text, Finish::kStop);
    } else if (text.outcome.new_tokens == asked.max_new_tokens) {
      End(text, Finish::kLength);
    }
  }

  void Fail(LiveText& text, const Status& status) {
    text.outcome.status = status;
    End(text, Finish::kFailed);
  }

  void End(LiveText& text, Finish finish) {
    text.ended = true;
    text.outcome.finish = finish;
    {
      const std::lock_guard lock(mutex);
      ++(finish == Finish::kCancelled ? stats.cancelled : finish == Finish::kFailed ? stats.failed : stats.finished);
      stats.prompt_tokens += text.outcome.prompt_tokens;
      stats.cached_tokens += text.outcome.cached_tokens;
      stats.prefix_memory = prefixes.bytes();
    }
    // A callback's exception is not the engine's.
    if (text.request.on_end) (void)Guarded([&] { text.request.on_end(text.outcome); });
  }

  const std::shared_ptr<const Bundle> bundle;
  const EngineOptions options;

  mutable std::mutex mutex;  // of the members up to `stats`
  std::condition_variable changed, idle;
  LiveTexts waiting;
  std::set<uint64_t> cancelled;
  uint64_t last_id = 0;
  bool accepting = true, stopping = false;
  EngineStats stats;

  LiveTexts reading, running;  // of the engine's thread, as all below
  Decoder reader, batch;
  PrefixCache prefixes;
  bool rows_changed = false;

  std::thread thread;
};

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

Result<Engine> Engine::Start(Model model, const EngineOptions& options) {
  return Guarded([&] { return Engine(std::make_unique<Impl>(std::move(model.bundle_), options)); });
}

Result<uint64_t> Engine::Submit(Request request) {
  return Guarded([&] { return impl_->Submit(std::move(request)); });
}

void Engine::Cancel(uint64_t id) {
  const std::lock_guard lock(impl_->mutex);
  impl_->cancelled.insert(id);
}

void Engine::Drain() {
  std::unique_lock lock(impl_->mutex);
  impl_->accepting = false;
  impl_->idle.wait(lock, [&] { return impl_->waiting.empty() && impl_->stats.running == 0; });
}

EngineStats Engine::stats() const {
  const std::lock_guard lock(impl_->mutex);
  EngineStats stats = impl_->stats;
  stats.waiting = static_cast<int64_t>(impl_->waiting.size());
  return stats;
}

}  // namespace seqlab
