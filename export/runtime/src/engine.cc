// Engine: the queue of requests, and the thread that decodes them.
#include "seqlab/engine.h"

#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "error.h"
#include "joined_state.h"
#include "scheduler.h"

namespace seqlab {
namespace {

constexpr int64_t kMostWaitingTokens = int64_t{1} << 24;

const EngineOptions& Checked(const EngineOptions& options) {
  const std::pair<const char*, int64_t> bounds[] = {{"memory", options.memory},
                                                    {"max_running", options.max_running},
                                                    {"max_waiting", options.max_waiting},
                                                    {"chunk", options.chunk}};
  for (const auto& [name, value] : bounds) {
    if (value < 1) Refuse(name, " must be at least 1, got ", value);
  }
  if (options.prefix_memory < 0) Refuse("prefix_memory must be at least 0, got ", options.prefix_memory);
  return options;
}

const Bundle& OnCpu(const Bundle& bundle) {
  if (bundle.options.provider == "cpu") return bundle;
  Refuse(StatusCode::kUnsupported, "an engine runs on the CPU; open the bundle with the provider cpu");
}

}  // namespace

struct Engine::Impl {
  Impl(std::shared_ptr<const Bundle> opened, const EngineOptions& given)
      : bundle(std::move(opened)), options(Checked(given)), scheduler(OnCpu(*bundle), options) {
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

  uint64_t Submit(Request request) {
    scheduler.Check(request);
    auto text = std::make_unique<LiveText>(std::move(request));
    const int64_t bytes = 2 * BytesOf(bundle->manifest, 1, text->longest, text->source);
    if (bytes > options.memory) {
      Refuse(StatusCode::kOutOfMemory, "the state of a text of ", text->longest, " tokens takes ", bytes,
             " bytes, the engine may hold ", options.memory);
    }
    const std::lock_guard lock(mutex);
    if (!accepting) Refuse(StatusCode::kUnavailable, "the engine accepts no more requests");
    if (static_cast<int64_t>(waiting.size()) >= options.max_waiting) {
      Refuse(StatusCode::kUnavailable, waiting.size(), " requests are waiting, which is the most; try again later");
    }
    const int64_t tokens = waiting_tokens + text->outcome.prompt_tokens;
    if (!waiting.empty() && tokens > kMostWaitingTokens) {
      Refuse(StatusCode::kUnavailable, "prompts of ", waiting_tokens, " tokens are waiting; try again later");
    }
    waiting_tokens = tokens;
    text->id = ++last_id;
    waiting.push_back(std::move(text));
    changed.notify_all();
    return last_id;
  }

  void Loop() {
    while (true) {
      LiveTexts ended;
      std::set<uint64_t> cancelled_now;
      bool all = false;
      {
        std::unique_lock lock(mutex);
        Publish();
        idle.notify_all();
        changed.wait(lock, [&] { return stopping || !waiting.empty() || scheduler.size() > 0; });
        if (stopping && waiting.empty() && scheduler.size() == 0) return;
        all = stopping;
        cancelled_now.swap(cancelled);
        for (auto text = waiting.begin(); text != waiting.end();) {
          if (all || cancelled_now.count((*text)->id) > 0) {
            waiting_tokens -= (*text)->outcome.prompt_tokens;
            ended.push_back(std::move(*text));
            text = waiting.erase(text);
          } else {
            ++text;
          }
        }
        stats.running += static_cast<int64_t>(ended.size());  // until they are told
      }
      for (const auto& text : ended) text->End(Finish::kCancelled);
      cancelled_in_queue += static_cast<int64_t>(ended.size());
      scheduler.Cancel([&](const LiveText& text) { return all || cancelled_now.count(text.id) > 0; });
      const Status status = Guarded([&] {
        Admit();
        scheduler.Advance();
      });
      if (!status.ok()) scheduler.FailAll(status);
    }
  }

  // Takes from the queue what may run. A text that fits alone runs alone at least.
  void Admit() {
    const std::lock_guard lock(mutex);
    while (!waiting.empty()) {
      const bool fits =
          scheduler.size() < options.max_running && scheduler.BytesWith(waiting.front().get()) <= options.memory;
      if (scheduler.size() > 0 && !fits) break;
      waiting_tokens -= waiting.front()->outcome.prompt_tokens;
      scheduler.Add(std::move(waiting.front()));
      waiting.pop_front();
    }
    Publish();
  }

  void Publish() {
    stats = scheduler.stats();
    stats.running = scheduler.size();
    stats.memory = scheduler.BytesWith(nullptr);
    stats.cancelled += cancelled_in_queue;
  }

  const std::shared_ptr<const Bundle> bundle;
  const EngineOptions options;

  mutable std::mutex mutex;  // of the members up to `stats`
  std::condition_variable changed, idle;
  LiveTexts waiting;
  int64_t waiting_tokens = 0;  // of their prompts
  std::set<uint64_t> cancelled;
  uint64_t last_id = 0;
  bool accepting = true, stopping = false;
  EngineStats stats;

  Scheduler scheduler;  // of the engine's thread, as what follows
  int64_t cancelled_in_queue = 0;

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
