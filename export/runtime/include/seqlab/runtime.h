// The seqlab runtime: runs what `seqlab export` wrote, with onnxruntime and without Python.
//
// No function throws, ends the process or writes anything, but `Result::value()` where there is none. B batch, T tokens, F
// features, V vocabulary, C classes.
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

// What a shared library of the runtime gives to others; all else is hidden in it.
#define SEQLAB_EXPORT __attribute__((visibility("default")))

namespace seqlab {

// What went wrong, to branch on.
enum class StatusCode {
  kOk,
  kInvalidArgument,  // what the caller gave
  kNotFound,         // no bundle, or no onnxruntime, is there
  kDamagedBundle,    // it is not as it was written, or its files do not fit each other
  kUnsupported,      // this onnxruntime, machine or runtime cannot do it
  kCancelled,        // a callback has said so
  kOutOfMemory,
  kInternal,         // onnxruntime failed in what should have worked
};

// Nothing, or what went wrong in one sentence.
class Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

// A value, or what went wrong.
template <typename T>
class Result {
 public:
  Result(T value) : content_(std::move(value)) {}
  Result(Status status) : content_(std::move(status)) {
    if (this->status().ok()) content_ = Status(StatusCode::kInternal, "a Result has neither a value nor an error");
  }

  bool ok() const { return std::holds_alternative<T>(content_); }
  Status status() const { return ok() ? Status() : *std::get_if<Status>(&content_); }

  // Only where ok(): elsewhere the process ends, and stderr has the message.
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

 private:
  std::variant<T, Status> content_;
};

using Ids = std::vector<int64_t>;

// Numbers in row-major order.
struct Array {
  std::vector<int64_t> dims;
  std::vector<float> values;
};

// Rows of one length. A bundle reads either tokens or features.
struct Batch {
  int64_t rows = 0;
  int64_t length = 0;
  Ids tokens;                    // (B, T)
  std::vector<float> features;   // (B, T, F)
  std::vector<uint8_t> pad_mask; // (B, T), 1 = real, 0 = not; empty = all are. A row's real tokens stand together.
};

struct OpenOptions {
  std::string provider = "cpu"; // or "cuda"
  int threads = 0;              // 0 = onnxruntime's choice, one a core
  // The file of onnxruntime's library. Empty = $SEQLAB_ORT_LIB, else the loader's path, else an installed Python wheel.
  // A process has one onnxruntime: the first that is opened.
  std::string onnxruntime;
};

// How a token is chosen; docs/bundle.md has the rule.
struct Sampling {
  double temperature = 1.0; // 0 = greedy
  std::optional<int64_t> top_k;
  double top_p = 1.0;
  double min_p = 0.0;
  uint64_t seed = 0;
};

// What becomes of tokens that a text, its prompt included, already has.
struct Repetition {
  double penalty = 1.0;         // divides their positive logits and multiplies the others
  std::optional<int64_t> ngram; // no sequence of so many tokens is written twice
};

struct GenerateOptions {
  int64_t max_new_tokens = 200;
  Sampling sampling;
  Repetition repetition;
  Ids stop_ids; // a row ends with any of these, which it keeps
};

struct BeamOptions {
  int64_t beams = 1;            // 1 is greedy
  int64_t max_new_tokens = 200; // of `Translate`: the longest target in training
  double length_penalty = 1.0;  // 0 prefers short texts
  Repetition repetition;
  Ids stop_ids;
};

struct TranslateOptions {
  int64_t beams = 1;
  double length_penalty = 1.0;
  Repetition repetition;
  std::string prefix; // each target begins with it
};

// A text that beam search found: the new tokens, and their log-probability over (their number)^length_penalty.
struct Hypothesis {
  Ids tokens;
  double score = 0.0;
};

struct Translation {
  std::string text;
  Hypothesis hypothesis;
};

// The classes of a text, or of each of its words.
struct Classes {
  std::vector<std::string> words;    // none = of the whole text
  int64_t rows = 1;                  // 1, or the number of words
  std::vector<double> probabilities; // (rows, C)
};

// What a bundle says of itself.
struct Info {
  std::string folder, precision, commit, run_id, min_onnxruntime;
  bool decodes = false;      // it writes: a language model, or one that reads a source
  bool reads_source = false; // it needs a source before it writes
  bool has_tokenizer = false;
  bool takes_any_bytes = false; // what it reads need not be UTF-8
  std::optional<int64_t> vocab_size, max_seq_len, max_source_len;
  int64_t seq_len = 0;
  std::vector<std::string> labels;
  std::string onnxruntime, onnxruntime_file; // the version that was opened, and where
  int onnxruntime_api = 0;
};

// An opened bundle. Copies share it, and any number of threads may use it at once.
class Model {
 public:
  // Checks the manifest and the sha256 of every file, then opens the graphs. Reads nothing outside `folder`.
  SEQLAB_EXPORT static Result<Model> Open(const std::string& folder, const OpenOptions& options = {});

  SEQLAB_EXPORT const Info& info() const;

  // Logits: (B, C), or (B, T, C), of an encoder; (B, T, V) of a language model.
  SEQLAB_EXPORT Result<Array> Run(const Batch& batch) const;

  // UTF-8 to ids and back. A byte tokenizer takes any bytes; the others refuse what is not UTF-8, with its offset.
  SEQLAB_EXPORT Result<Ids> Encode(std::string_view text) const;
  SEQLAB_EXPORT Result<Ids> EncodeSource(std::string_view text) const;
  SEQLAB_EXPORT Result<std::string> Decode(const Ids& ids) const;

  struct Impl;
  explicit Model(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  const Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

// Called with the row and the token as each is chosen. False cancels: what was asked then ends with kCancelled.
using OnToken = std::function<bool(int64_t row, int64_t token)>;
// Called with each piece of new text as it is complete; the pieces join to the text. False cancels.
using OnText = std::function<bool(std::string_view piece)>;

// What one user does with a model: it holds the decoder's state, which stays on the device. For one thread at a time.
class Session {
 public:
  SEQLAB_EXPORT explicit Session(Model model);
  SEQLAB_EXPORT ~Session();
  SEQLAB_EXPORT Session(Session&&) noexcept;
  SEQLAB_EXPORT Session& operator=(Session&&) noexcept;

  // Reads sources, one a row, which end with eos; what is written from now on is of them.
  SEQLAB_EXPORT Status ReadSource(const std::vector<Ids>& sources);

  // Reads prompts of any lengths, one a row, from the start: logits (B, V) after each. With a source, as many as it has.
  SEQLAB_EXPORT Result<Array> Prefill(const std::vector<Ids>& prompts);

  // Reads one more token a row: logits (B, V).
  SEQLAB_EXPORT Result<Array> Step(const Ids& tokens);

  // Continues prompts: the new tokens of each.
  SEQLAB_EXPORT Result<std::vector<Ids>> Generate(const std::vector<Ids>& prompts, const GenerateOptions& options,
                                                  const OnToken& on_token = nullptr);

  // Continues each prompt in the best ways that are found, the best first.
  SEQLAB_EXPORT Result<std::vector<std::vector<Hypothesis>>> BeamSearch(const std::vector<Ids>& prompts,
                                                                        const BeamOptions& options);

  // What the model writes after a prompt, until it ends the text; of a bundle without a tokenizer both are ids, such as
  // "5 6 7", and nothing ends it. `options.stop_ids` are not read.
  SEQLAB_EXPORT Result<std::string> Write(std::string_view prompt, const GenerateOptions& options,
                                          const OnText& on_text = nullptr);

  // The targets of source texts, which are read together: for each at most `beams`, the best first.
  SEQLAB_EXPORT Result<std::vector<std::vector<Translation>>> Translate(const std::vector<std::string>& texts,
                                                                        const TranslateOptions& options = {});

  // The probabilities of a text's classes, or of those of each of its words.
  SEQLAB_EXPORT Result<Classes> Classify(std::string_view text);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// How far a runtime's numbers are from the float64 reference, relative to the reference's RMS.
struct Errors {
  double rms = 0.0;
  double torch = 0.0;    // PyTorch's own
  double limit = 0.0;    // the most that `rms` may be
  double largest = 0.0;  // of a single number, which is not gated
};

struct Check {
  std::string kind;     // files, signature, encoder, prefill, chunks, step or greedy
  std::string subject;  // such as a file or a cell
  bool ok = false;
  std::string note;
  std::optional<Errors> errors;  // where numbers were compared
};

// How far a runtime's distributions of a token or class are from float64's, where all logits were kept.
struct Divergence {
  double kl = 0.0, kl_p99 = 0.0;  // mean and 99th percentile, in nats
  double top1 = 0.0;              // the share of places at which the likeliest is the same
};

struct Report {
  std::string provider, onnxruntime, precision;
  std::vector<Check> checks;
  std::optional<Divergence> divergence;  // where all is well so far

  // Whether something was checked and everything is as it should be.
  SEQLAB_EXPORT bool ok() const;
};

// Proves a bundle on this machine, as docs/bundle.md says, and changes nothing in it. What is wrong with its values is in
// the report; what is no bundle at all, or cannot be opened, is a Status.
SEQLAB_EXPORT Result<Report> Verify(const std::string& folder, const OpenOptions& options = {});

}  // namespace seqlab

#endif  // SEQLAB_RUNTIME_H_
