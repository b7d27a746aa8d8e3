/// @file
/// The seqlab runtime: runs what `seqlab export` wrote, with onnxruntime and without Python.
///
/// @code{.cpp}
/// #include <iostream>
/// #include <seqlab/runtime.h>
///
/// bool Show(std::string_view piece) { return bool(std::cout << piece << std::flush); }  // false would cancel
///
/// int main() {
///   const auto model = seqlab::Model::Open("bundles/mine");
///   if (!model.ok()) {
///     std::cerr << model.status().message() << "\n";
///     return 2;
///   }
///   seqlab::GenerateOptions options;
///   options.sampling.temperature = 0.8;
///   seqlab::Session session(*model);
///   const auto text = session.Write("The ", options, Show);
///   if (!text.ok()) std::cerr << text.status().message() << "\n";
///   return text.ok() ? 0 : 2;
/// }
/// @endcode
///
/// No function throws, ends the process or prints, except `Result::value()` without a value. Every call may fail with
/// kOutOfMemory or kInternal. The comment of a call names the other codes with which it fails.
/// Shapes: B rows of a batch, T tokens, F features, V vocabulary, C classes.
#ifndef SEQLAB_RUNTIME_H_
#define SEQLAB_RUNTIME_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "seqlab/status.h"

#define SEQLAB_VERSION_MAJOR 0  ///< Major version; these headers have the version of the package.
#define SEQLAB_VERSION_MINOR 2  ///< Minor version.
#define SEQLAB_VERSION_PATCH 0  ///< Patch version.

/// Exports a symbol from a shared library of the runtime; all others are hidden.
#define SEQLAB_EXPORT __attribute__((visibility("default")))

namespace seqlab {

/// Token ids, from 0 on.
using Ids = std::vector<int64_t>;

/// Numbers in row-major order.
struct Array {
  std::vector<int64_t> dims;  ///< sizes of the axes
  std::vector<float> values;  ///< as many numbers as the product of the sizes
};

/// Rows of one length. A bundle reads either tokens or features.
struct Batch {
  int64_t rows = 0;               ///< B
  int64_t length = 0;             ///< T
  Ids tokens;                     ///< (B, T)
  std::vector<float> features;    ///< (B, T, F)
  std::vector<uint8_t> pad_mask;  ///< (B, T), 1 = real, 0 = padding, never between real tokens; empty = all real
};

/// Options for opening a bundle.
struct OpenOptions {
  std::string provider = "cpu";  ///< "cpu" or "cuda"
  int threads = 0;               ///< number of threads; 0 = onnxruntime's choice, one per core
  /// Path of onnxruntime's library. Empty = $SEQLAB_ORT_LIB, else the loader's path, else an installed Python wheel.
  /// A process has one onnxruntime: the first that is opened.
  std::string onnxruntime;
};

/// Rule by which a token is chosen; docs/bundle.md defines it.
struct Sampling {
  double temperature = 1.0;      ///< 0 = greedy
  std::optional<int64_t> top_k;  ///< number of likeliest tokens to sample from; none = all
  double top_p = 1.0;            ///< total probability of the likeliest tokens to sample from
  double min_p = 0.0;            ///< least probability of a token, as a fraction of the likeliest token's
  uint64_t seed = 0;             ///< seed of the random numbers
};

/// Rules for tokens that a text, its prompt included, already has.
struct Repetition {
  double penalty = 1.0;          ///< divides their positive logits and multiplies their negative ones
  std::optional<int64_t> ngram;  ///< length of a sequence that is never repeated, in tokens; none = any may be
};

/// Options for continuing a text.
struct GenerateOptions {
  int64_t max_new_tokens = 200;  ///< maximum number of tokens to generate
  Sampling sampling;             ///< rule by which a token is chosen
  Repetition repetition;         ///< rules for repeated tokens
  Ids stop_ids;                  ///< tokens that end a row, which keeps the one that ended it
};

/// Options for beam search.
struct BeamOptions {
  int64_t beams = 1;             ///< number of beams of a prompt; 1 = greedy
  int64_t max_new_tokens = 200;  ///< maximum number of tokens to generate
  double length_penalty = 1.0;   ///< exponent of the length in a score; 0 favours short texts
  Repetition repetition;         ///< rules for repeated tokens
  Ids stop_ids;                  ///< tokens that end a text, which keeps the one that ended it
};

/// Options for `Session::Translate`, whose targets are at most as long as those of training.
struct TranslateOptions {
  int64_t beams = 1;            ///< number of beams of a text; 1 = greedy
  double length_penalty = 1.0;  ///< exponent of the length in a score; 0 favours short targets
  Repetition repetition;        ///< rules for repeated tokens
  std::string prefix;           ///< text that every target begins with
};

/// A continuation that beam search found.
struct Hypothesis {
  Ids tokens;          ///< new tokens
  double score = 0.0;  ///< their log-probability / (number of tokens)^length_penalty
};

/// A target that `Session::Translate` found.
struct Translation {
  std::string text;       ///< the target with its prefix
  Hypothesis hypothesis;  ///< the tokens after the prefix, and their score
};

/// Class probabilities of a text, or of each of its words.
struct Classes {
  std::vector<std::string> words;     ///< words of the text; empty = the classes are of the whole text
  int64_t rows = 1;                   ///< 1, or the number of words
  std::vector<double> probabilities;  ///< (rows, C)
};

/// A message of a chat.
struct Message {
  std::string role;     ///< "system", "user" or "assistant"
  std::string content;  ///< text in UTF-8
};

/// Facts about an opened bundle.
struct Info {
  std::string folder;                     ///< path that was opened
  std::string precision;                  ///< fp32, fp16, bf16, int8 or int4
  std::string commit;                     ///< commit of the code that trained the model
  std::string run_id;                     ///< id of the run that trained the model
  std::string min_onnxruntime;            ///< oldest version that runs the bundle
  bool decodes = false;                   ///< true for a language model and for an encoder-decoder
  bool reads_source = false;              ///< true for an encoder-decoder
  bool has_tokenizer = false;             ///< true if the runtime has the bundle's tokenizer
  bool chats = false;                     ///< true for a language model that was trained on chats
  bool takes_any_bytes = false;           ///< true if the text that it reads need not be UTF-8
  std::optional<int64_t> vocab_size;      ///< V
  std::optional<int64_t> max_seq_len;     ///< maximum length of a text, in tokens
  std::optional<int64_t> max_source_len;  ///< maximum length of an encoder's input, in tokens
  int64_t seq_len = 0;                    ///< length of the texts in training, in tokens
  Ids stop_ids;                           ///< tokens, any of which ends a text
  std::vector<std::string> labels;        ///< names of the C classes
  std::string onnxruntime;                ///< version of the opened onnxruntime
  std::string onnxruntime_file;           ///< path of its library
  int onnxruntime_api = 0;                ///< version of its C API
};

struct Bundle;

/// An opened bundle. Copies share it, and any number of threads may use it at once.
class Model {
 public:
  /// Checks the manifest and the sha256 of every file, then opens the graphs. Reads nothing outside `folder`.
  /// Fails with
  /// - kNotFound if the folder is no bundle, or onnxruntime's library is not found,
  /// - kDamagedBundle if a check fails, or onnxruntime cannot load a graph,
  /// - kUnsupported if onnxruntime is too old or lacks the provider, or the runtime lacks the source's tokenizer,
  /// - kInvalidArgument if an option is wrong, another onnxruntime is open, or a file cannot be read.
  SEQLAB_EXPORT static Result<Model> Open(const std::string& folder, const OpenOptions& options = {});

  /// Returns facts about the bundle.
  SEQLAB_EXPORT const Info& info() const;

  /// Returns the logits of a batch: (B, C) or (B, T, C) from an encoder, (B, T, V) from a language model. Fails with
  /// kInvalidArgument if the model cannot read the batch, and kDamagedBundle if its graphs contradict the manifest. An
  /// id that an encoder does not know is kInternal.
  SEQLAB_EXPORT Result<Array> Run(const Batch& batch) const;

  /// @{
  /// Converts UTF-8 to ids, or ids to UTF-8. Fails with kUnsupported if the bundle or the runtime lacks the tokenizer,
  /// and with kInvalidArgument if an id is outside the vocabulary or the text is not UTF-8; a byte tokenizer takes any
  /// bytes.
  SEQLAB_EXPORT Result<Ids> Encode(std::string_view text) const;
  SEQLAB_EXPORT Result<Ids> EncodeSource(std::string_view text) const;
  SEQLAB_EXPORT Result<std::string> Decode(const Ids& ids) const;
  /// @}

  /// Returns the bytes of a token, which need not be UTF-8 alone; a special token has none. Fails as `Decode`.
  SEQLAB_EXPORT Result<std::string> TokenBytes(int64_t id) const;

  /// Returns the ids that `Session::Write` reads for a prompt: those of the text, bos for an empty text, and without a
  /// tokenizer the ids that the text lists, such as "5 6 7". Fails as `Encode`.
  SEQLAB_EXPORT Result<Ids> EncodePrompt(std::string_view text) const;

  /// Returns the ids of a chat, up to where the model's answer begins, as its chat template writes them. A special
  /// token in a message is plain text. Fails as `Encode`, and with kInvalidArgument if the model was not trained on
  /// chats, or a role is unknown or may not follow the one before it.
  SEQLAB_EXPORT Result<Ids> EncodeChat(const std::vector<Message>& messages) const;

 private:
  friend class Engine;
  friend class Session;
  friend class TextPieces;
  explicit Model(std::shared_ptr<const Bundle> bundle) : bundle_(std::move(bundle)) {}

  std::shared_ptr<const Bundle> bundle_;
};

/// Receives the row and the token as each token is chosen. False cancels: the call fails with kCancelled.
using OnToken = std::function<bool(int64_t row, int64_t token)>;
/// Receives each piece of new text as it is complete; the pieces join to the text. False cancels.
using OnText = std::function<bool(std::string_view piece)>;

/// One user's decoding with a model: holds the decoder's state, which stays on the device. For one thread at a time.
///
/// Every call fails with kInvalidArgument if an argument is wrong or the bundle is of another kind, and with
/// kDamagedBundle if a graph contradicts the manifest.
class Session {
 public:
  /// @{
  /// Makes a session that has read nothing. It keeps the bundle open, and can be moved.
  SEQLAB_EXPORT explicit Session(Model model);
  SEQLAB_EXPORT ~Session();
  SEQLAB_EXPORT Session(Session&&) noexcept;
  SEQLAB_EXPORT Session& operator=(Session&&) noexcept;
  /// @}

  /// Reads sources, one a row, each ending with eos. All that is decoded from now on is decoded from them. An id that
  /// the encoder does not know is kInternal.
  SEQLAB_EXPORT Status ReadSource(const std::vector<Ids>& sources);

  /// Reads prompts of any lengths, one a row, from the start, and returns the logits (B, V) after each. An
  /// encoder-decoder needs one prompt for each source.
  SEQLAB_EXPORT Result<Array> Prefill(const std::vector<Ids>& prompts);

  /// Reads one more token a row and returns the logits (B, V) after it.
  SEQLAB_EXPORT Result<Array> Step(const Ids& tokens);

  /// Continues prompts and returns the new tokens of each. Fails with kCancelled too, if `on_token` returns false.
  SEQLAB_EXPORT Result<std::vector<Ids>> Generate(const std::vector<Ids>& prompts, const GenerateOptions& options,
                                                  const OnToken& on_token = nullptr);

  /// Continues prompts and returns the best continuations found of each, the best first.
  SEQLAB_EXPORT Result<std::vector<std::vector<Hypothesis>>> BeamSearch(const std::vector<Ids>& prompts,
                                                                        const BeamOptions& options);

  /// Continues a text and returns the new text. The stop tokens are the manifest's stop_ids, not `options.stop_ids`.
  /// Without a tokenizer both texts are ids, such as "5 6 7". Fails with kCancelled too, if `on_text` returns false,
  /// and with kUnsupported if the runtime lacks the tokenizer.
  SEQLAB_EXPORT Result<std::string> Write(std::string_view prompt, const GenerateOptions& options,
                                          const OnText& on_text = nullptr);

  /// Reads texts together and returns at most `beams` targets of each, the best first. Fails with kUnsupported too, if
  /// the bundle or the runtime lacks a tokenizer.
  SEQLAB_EXPORT Result<std::vector<std::vector<Translation>>> Translate(const std::vector<std::string>& texts,
                                                                        const TranslateOptions& options = {});

  /// Returns the class probabilities of a text, or of each of its words. Fails with kUnsupported too, if the bundle
  /// or the runtime lacks the tokenizer.
  SEQLAB_EXPORT Result<Classes> Classify(std::string_view text);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace seqlab

#endif  // SEQLAB_RUNTIME_H_
