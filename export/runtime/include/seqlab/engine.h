/// @file
/// Continuous batching: requests of many users share each step of one model, whatever its mixers are.
///
/// @code{.cpp}
/// auto engine = seqlab::Engine::Start(*seqlab::Model::Open("bundles/mine"));
/// seqlab::Request request;
/// request.prompt = {5, 6, 7};
/// request.on_token = [](const seqlab::NewToken& token) { return Send(token.id); };  // false would cancel
/// const auto id = engine->Submit(std::move(request));
/// engine->Drain();
/// @endcode
#ifndef SEQLAB_ENGINE_H_
#define SEQLAB_ENGINE_H_

#include "seqlab/runtime.h"

namespace seqlab {

/// Bounds of an engine. Each is at least 1, except `prefix_memory`.
struct EngineOptions {
  int64_t memory = int64_t{1} << 30;         ///< bytes that the states of running requests may take
  int64_t prefix_memory = int64_t{1} << 26;  ///< bytes of kept states of prompt prefixes; 0 = none are kept
  int64_t max_running = 64;                  ///< number of requests that share a step
  int64_t max_waiting = 256;                 ///< number of requests in the queue
  int64_t chunk = 256;                       ///< number of prompt tokens read between two steps
};

/// A chosen token.
struct NewToken {
  int64_t id = 0;
  std::optional<double> log_probability;              ///< in nats, before temperature, if `Request::likeliest` is set
  std::vector<std::pair<int64_t, double>> likeliest;  ///< the likeliest tokens and their log-probabilities
  int64_t cached_tokens = 0;  ///< number of tokens of the prompt whose state was kept from an earlier prompt
};

/// Reason why a request ended.
enum class Finish { kStop, kLength, kCancelled, kFailed };

/// How a request ended.
struct Outcome {
  Finish finish = Finish::kStop;
  Status status;              ///< the failure if `finish` is kFailed
  int64_t prompt_tokens = 0;  ///< number of tokens of the prompt
  int64_t cached_tokens = 0;  ///< number of these whose state was kept from an earlier prompt
  int64_t new_tokens = 0;     ///< number of chosen tokens
};

/// A text to continue. Its tokens are those of `Session::Generate` for this prompt alone.
struct Request {
  Ids prompt;
  Ids source;  ///< source of an encoder-decoder, ending with eos
  GenerateOptions options;
  int64_t row = 0;                   ///< row of a batch whose random numbers are drawn
  std::optional<int64_t> likeliest;  ///< number of likeliest tokens to report; none = no log-probabilities either
  /// Receives each token, in the engine's thread, which waits for it. False cancels.
  std::function<bool(const NewToken&)> on_token;
  /// Receives the end, once, in the engine's thread.
  std::function<void(const Outcome&)> on_end;
};

/// Decodes the tokens of one text as they come: the pieces join to `Model::Decode` of all. Without a tokenizer a text
/// is ids, such as "5 6 7".
class TextPieces {
 public:
  /// @{
  /// Begins a text.
  SEQLAB_EXPORT explicit TextPieces(Model model);
  SEQLAB_EXPORT ~TextPieces();
  SEQLAB_EXPORT TextPieces(TextPieces&&) noexcept;
  SEQLAB_EXPORT TextPieces& operator=(TextPieces&&) noexcept;
  /// @}

  /// Returns the text that a token completes. Fails with kInvalidArgument if the id is outside the vocabulary.
  SEQLAB_EXPORT Result<std::string> Push(int64_t id);
  /// Returns what remains: bytes that are no whole character become U+FFFD.
  SEQLAB_EXPORT Result<std::string> Finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Counts since the start, and the present state.
struct EngineStats {
  int64_t running = 0;        ///< number of requests that are read or continued now
  int64_t waiting = 0;        ///< number of requests in the queue
  int64_t memory = 0;         ///< bytes of the states of running requests
  int64_t prefix_memory = 0;  ///< bytes of kept states of prompt prefixes
  int64_t steps = 0;          ///< number of steps
  int64_t new_tokens = 0;     ///< number of chosen tokens
  int64_t prompt_tokens = 0;  ///< number of prompt tokens, cached ones included
  int64_t cached_tokens = 0;  ///< number of prompt tokens whose state was kept
  int64_t finished = 0;       ///< number of requests that ended with a stop token or at their length
  int64_t cancelled = 0;      ///< number of cancelled requests
  int64_t failed = 0;         ///< number of requests that failed after they were accepted
};

/// A thread that decodes the requests of any number of other threads together. It runs on the CPU. A callback may
/// submit and cancel, and may neither drain nor destroy the engine.
class Engine {
 public:
  /// Starts an engine. Fails with kInvalidArgument if a bound is out of range or the bundle does not decode, and with
  /// kUnsupported if the bundle was opened on another device than the CPU.
  SEQLAB_EXPORT static Result<Engine> Start(Model model, const EngineOptions& options = {});
  /// @{
  /// Cancels all requests on destruction.
  SEQLAB_EXPORT ~Engine();
  SEQLAB_EXPORT Engine(Engine&&) noexcept;
  SEQLAB_EXPORT Engine& operator=(Engine&&) noexcept;
  /// @}

  /// Queues a request and returns its number. Fails with
  /// - kInvalidArgument if the model cannot read the prompt or the source, or an option is out of range,
  /// - kOutOfMemory if its state alone would take more than `EngineOptions::memory`,
  /// - kUnavailable if the queue is full, or the engine drains.
  SEQLAB_EXPORT Result<uint64_t> Submit(Request request);

  /// Ends a request before its next token. Does nothing if it has ended.
  SEQLAB_EXPORT void Cancel(uint64_t id);

  /// Accepts no further request, and returns when all have ended.
  SEQLAB_EXPORT void Drain();

  /// Returns counts.
  SEQLAB_EXPORT EngineStats stats() const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace seqlab

#endif  // SEQLAB_ENGINE_H_
