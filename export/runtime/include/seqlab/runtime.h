/// @file
/// The seqlab runtime: runs what `seqlab export` wrote, with onnxruntime and without Python.
///
/// No function throws, ends the process or writes anything, but `Result::value()` where there is none. B batch, T tokens, F
/// features, V vocabulary, C classes.
#ifndef SEQLAB_RUNTIME_H_
#define SEQLAB_RUNTIME_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

/// What a shared library of the runtime gives to others; all else is hidden in it.
#define SEQLAB_EXPORT __attribute__((visibility("default")))

namespace seqlab {

/// What went wrong, to branch on.
enum class StatusCode {
  kOk,               ///< nothing
  kInvalidArgument,  ///< what the caller gave
  kNotFound,         ///< no bundle, or no onnxruntime, is there
  kDamagedBundle,    ///< it is not as it was written, or its files do not fit each other
  kUnsupported,      ///< this onnxruntime, machine or runtime cannot do it
  kCancelled,        ///< a callback has said so
  kOutOfMemory,      ///< there is not enough of it
  kInternal,         ///< onnxruntime failed in what should have worked
};

/// Nothing, or what went wrong in one sentence.
class Status {
 public:
  Status() = default;
  /// What went wrong; not of `kOk`.
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }    ///< Whether nothing went wrong.
  StatusCode code() const { return code_; }               ///< `kOk` where nothing did.
  const std::string& message() const { return message_; } ///< The sentence; empty where nothing did.

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

/// A value, or what went wrong.
template <typename T>
class Result {
 public:
  /// Of what a function returns.
  Result(T value) : content_(std::move(value)) {}
  /// Of what went wrong in it.
  Result(Status status) : content_(std::move(status)) {
    if (this->status().ok()) content_ = Status(StatusCode::kInternal, "a Result has neither a value nor an error");
  }

  /// Whether it has a value.
  bool ok() const { return std::holds_alternative<T>(content_); }
  /// What went wrong, if anything.
  Status status() const { return ok() ? Status() : *std::get_if<Status>(&content_); }

  /// @{
  /// The value, only where ok(): elsewhere the process ends, and stderr has the message.
  T& value() { return const_cast<T&>(std::as_const(*this).value()); }
  const T& value() const {
    if (!ok()) {
      std::fprintf(stderr, "seqlab: the value of a Result that has none: %s\n", status().message().c_str());
      std::abort();
    }
    return *std::get_if<T>(&content_);
  }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  /// @}

 private:
  std::variant<T, Status> content_;
};

/// Of tokens, from 0 on.
using Ids = std::vector<int64_t>;

/// Numbers in row-major order.
struct Array {
  std::vector<int64_t> dims;   ///< the sizes of its axes
  std::vector<float> values;   ///< as many as the product of these
};

/// Rows of one length. A bundle reads either tokens or features.
struct Batch {
  int64_t rows = 0;              ///< B
  int64_t length = 0;            ///< T
  Ids tokens;                    ///< (B, T)
  std::vector<float> features;   ///< (B, T, F)
  std::vector<uint8_t> pad_mask; ///< (B, T), 1 = real, 0 = not; empty = all are. A row's real tokens stand together.
};

/// What a bundle is run with.
struct OpenOptions {
  std::string provider = "cpu"; ///< or "cuda"
  int threads = 0;              ///< 0 = onnxruntime's choice, one a core
  /// The file of onnxruntime's library. Empty = $SEQLAB_ORT_LIB, else the loader's path, else an installed Python wheel.
  /// A process has one onnxruntime: the first that is opened.
  std::string onnxruntime;
};

/// How a token is chosen; docs/bundle.md has the rule.
struct Sampling {
  double temperature = 1.0;     ///< 0 = greedy
  std::optional<int64_t> top_k; ///< of so many of the likeliest
  double top_p = 1.0;           ///< of the likeliest that make up so much
  double min_p = 0.0;           ///< of those that are so many times as likely as the likeliest
  uint64_t seed = 0;            ///< of the random numbers
};

/// What becomes of tokens that a text, its prompt included, already has.
struct Repetition {
  double penalty = 1.0;         ///< divides their positive logits and multiplies the others
  std::optional<int64_t> ngram; ///< no sequence of so many tokens is written twice
};

/// How a text is continued.
struct GenerateOptions {
  int64_t max_new_tokens = 200; ///< where nothing ends it before
  Sampling sampling;            ///< how each token is chosen
  Repetition repetition;        ///< of what the text has
  Ids stop_ids;                 ///< a row ends with any of these, which it keeps
};

/// How the best texts are searched for.
struct BeamOptions {
  int64_t beams = 1;            ///< 1 is greedy
  int64_t max_new_tokens = 200; ///< where nothing ends a text before
  double length_penalty = 1.0;  ///< 0 prefers short texts
  Repetition repetition;        ///< of what a text has
  Ids stop_ids;                 ///< a text ends with any of these, which it keeps
};

/// The same of `Translate`, whose targets are as long as the longest in training.
struct TranslateOptions {
  int64_t beams = 1;           ///< 1 is greedy
  double length_penalty = 1.0; ///< 0 prefers short texts
  Repetition repetition;       ///< of what a target has
  std::string prefix;          ///< each target begins with it
};

/// A text that beam search found.
struct Hypothesis {
  Ids tokens;         ///< the new ones
  double score = 0.0; ///< their log-probability over (their number)^length_penalty
};

/// A target that was found.
struct Translation {
  std::string text;      ///< with the prefix
  Hypothesis hypothesis; ///< without it
};

/// The classes of a text, or of each of its words.
struct Classes {
  std::vector<std::string> words;    ///< none = of the whole text
  int64_t rows = 1;                  ///< 1, or the number of words
  std::vector<double> probabilities; ///< (rows, C)
};

/// What a bundle says of itself.
struct Info {
  std::string folder;           ///< where it was opened
  std::string precision;        ///< fp32, fp16, bf16, int8 or int4
  std::string commit;           ///< of the code that trained it
  std::string run_id;           ///< of the run that it is of
  std::string min_onnxruntime;  ///< the oldest version that runs it
  bool decodes = false;         ///< it writes: a language model, or one that reads a source
  bool reads_source = false;    ///< it needs a source before it writes
  bool has_tokenizer = false;   ///< it has one that the runtime has too
  bool takes_any_bytes = false; ///< what it reads need not be UTF-8
  std::optional<int64_t> vocab_size;     ///< V
  std::optional<int64_t> max_seq_len;    ///< the most tokens of a text
  std::optional<int64_t> max_source_len; ///< the most tokens of a source
  int64_t seq_len = 0;                   ///< of the texts in training
  std::vector<std::string> labels;       ///< the names of its C classes
  std::string onnxruntime;               ///< the version that was opened
  std::string onnxruntime_file;          ///< and where
  int onnxruntime_api = 0;               ///< of which this API
};

struct Bundle;

/// An opened bundle. Copies share it, and any number of threads may use it at once.
class Model {
 public:
  /// Checks the manifest and the sha256 of every file, then opens the graphs. Reads nothing outside `folder`.
  SEQLAB_EXPORT static Result<Model> Open(const std::string& folder, const OpenOptions& options = {});

  /// What the bundle says of itself.
  SEQLAB_EXPORT const Info& info() const;

  /// Logits: (B, C), or (B, T, C), of an encoder; (B, T, V) of a language model.
  SEQLAB_EXPORT Result<Array> Run(const Batch& batch) const;

  /// @{
  /// UTF-8 to ids and back. A byte tokenizer takes any bytes; the others refuse what is not UTF-8, with its offset.
  SEQLAB_EXPORT Result<Ids> Encode(std::string_view text) const;
  SEQLAB_EXPORT Result<Ids> EncodeSource(std::string_view text) const;
  SEQLAB_EXPORT Result<std::string> Decode(const Ids& ids) const;
  /// @}

 private:
  friend class Session;
  explicit Model(std::shared_ptr<const Bundle> bundle) : bundle_(std::move(bundle)) {}

  std::shared_ptr<const Bundle> bundle_;
};

/// Called with the row and the token as each is chosen. False cancels: what was asked then ends with kCancelled.
using OnToken = std::function<bool(int64_t row, int64_t token)>;
/// Called with each piece of new text as it is complete; the pieces join to the text. False cancels.
using OnText = std::function<bool(std::string_view piece)>;

/// What one user does with a model: it holds the decoder's state, which stays on the device. For one thread at a time.
class Session {
 public:
  /// @{
  /// One that has read nothing; it keeps the bundle open, and can be moved.
  SEQLAB_EXPORT explicit Session(Model model);
  SEQLAB_EXPORT ~Session();
  SEQLAB_EXPORT Session(Session&&) noexcept;
  SEQLAB_EXPORT Session& operator=(Session&&) noexcept;
  /// @}

  /// Reads sources, one a row, which end with eos; what is written from now on is of them.
  SEQLAB_EXPORT Status ReadSource(const std::vector<Ids>& sources);

  /// Reads prompts of any lengths, one a row, from the start: logits (B, V) after each. With a source, as many as it has.
  SEQLAB_EXPORT Result<Array> Prefill(const std::vector<Ids>& prompts);

  /// Reads one more token a row: logits (B, V).
  SEQLAB_EXPORT Result<Array> Step(const Ids& tokens);

  /// Continues prompts: the new tokens of each.
  SEQLAB_EXPORT Result<std::vector<Ids>> Generate(const std::vector<Ids>& prompts, const GenerateOptions& options,
                                                  const OnToken& on_token = nullptr);

  /// Continues each prompt in the best ways that are found, the best first.
  SEQLAB_EXPORT Result<std::vector<std::vector<Hypothesis>>> BeamSearch(const std::vector<Ids>& prompts,
                                                                        const BeamOptions& options);

  /// What the model writes after a prompt, until one of the manifest's stop_ids ends the text, in place of
  /// `options.stop_ids`; of a bundle without a tokenizer both are ids, such as "5 6 7".
  SEQLAB_EXPORT Result<std::string> Write(std::string_view prompt, const GenerateOptions& options,
                                          const OnText& on_text = nullptr);

  /// The targets of source texts, which are read together: for each at most `beams`, the best first.
  SEQLAB_EXPORT Result<std::vector<std::vector<Translation>>> Translate(const std::vector<std::string>& texts,
                                                                        const TranslateOptions& options = {});

  /// The probabilities of a text's classes, or of those of each of its words.
  SEQLAB_EXPORT Result<Classes> Classify(std::string_view text);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace seqlab

#endif  // SEQLAB_RUNTIME_H_
