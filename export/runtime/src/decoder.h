// The decoder of a bundle: the state of a batch of texts, which the graphs read and renew on the device.
#ifndef SEQLAB_DECODER_H_
#define SEQLAB_DECODER_H_

#include <memory>
#include <string>
#include <vector>

#include "bundle.h"
#include "row_selection.h"

namespace seqlab {

// Logits of the next token, (B, V), in the memory where a graph wrote them.
struct Logits {
  int64_t rows = 0, vocab_size = 0;
  std::shared_ptr<const float> values;

  const float* Row(int64_t row) const { return values.get() + row * vocab_size; }
  // Returns a row in float64.
  std::vector<double> Doubles(int64_t row) const { return {Row(row), Row(row) + vocab_size}; }
};

// Makes logits that own their numbers.
Logits ToLogits(int64_t rows, int64_t vocab_size, std::vector<float> numbers);

class Decoder {
 public:
  // Throws Refusal if the bundle has no decoder.
  explicit Decoder(const Bundle& bundle);

  const Bundle& bundle() const { return bundle_; }

  // Reads sources (B, M) or (B, M, F) and their mask (B, M). Every later `Start` begins from them.
  void ReadSource(const Value& source, const Value& mask);

  // Throws Refusal if an id is outside the vocabulary, or a text of `read` tokens is longer than the model reads.
  void CheckReadable(const Ids& tokens, int64_t read) const;

  // Resets the state to `rows` texts without a token. Throws Refusal if the model needs a source for each and has read
  // none, or another number of sources.
  void Start(int64_t rows);

  // Reads tokens (B, T) and returns the logits (B, T, V). `graph` is the bundle's `model`, or its `step` if T = 1.
  Value Run(const Graph& graph, const Rows& rows);
  // Reads tokens (B, T) with the bundle's `model` and returns the logits (B, K, V) at these K positions.
  Value RunScoring(const Rows& rows, const Ids& scored);

  // Starts anew, reads prompts and returns the logits after each.
  Logits Prefill(const std::vector<Ids>& prompts);
  // Reads one more token a row and returns the logits after it.
  Logits Step(const Ids& tokens);
  // Reads more tokens of a single text and returns the logits after the last.
  Logits Extend(const Ids& tokens);

  // Gives up the state of the texts that are read, by entry of the manifest, and continues another: that of `rows`
  // texts, of which the longest has `read` tokens.
  std::vector<Value> TakeState() { return std::move(state_); }
  void Resume(std::vector<Value> state, int64_t rows, int64_t read);

  // Returns the number of tokens that the model guesses beyond the next one.
  int64_t num_ahead() const;
  // Reads tokens of a single text, and returns the logits after each from position `first` on and the guesses of the
  // tokens after that one. The state stays until `Keep`.
  struct Guessed {
    Logits logits;            // (K, V)
    std::vector<Ids> tokens;  // (K, N)
  };
  Guessed Guess(const Ids& tokens, int64_t first);
  // Goes on to the state that the last `Guess` has read.
  void Keep();

  // Selects these rows of the state, in this order. Entries that come from the source move only if the sources do.
  void Select(const std::vector<int64_t>& rows);

  // Returns the entry of the state with this name, on the device.
  const Value& State(const std::string& name) const;

 private:
  int64_t vocab_size() const { return *bundle_.manifest.vocab_size; }
  // The origin of each input of a graph and the destination of each output: an entry of the state, or one of these.
  enum : int { kTokens = -1, kMask = -2, kScored = -3, kLogits = -4, kGuesses = -5 };
  struct Wiring {
    std::vector<int> inputs, outputs;
  };
  Wiring WiringOf(const GraphInfo& info) const;
  // Entries of the state, and the graph that selects their rows, which is made when first needed.
  struct Part {
    std::vector<size_t> entries;
    std::unique_ptr<RowSelection> selection;
  };
  // Selects these rows of the entries, which have `count` rows.
  void Take(Part& part, const std::vector<int64_t>& rows, int64_t count);
  // Selects the rows of the entries that have one row per source, which consecutive texts share.
  void TakeSources(const std::vector<int64_t>& rows);
  // Reads tokens (B, T) and their mask (B, T) with the bundle's `model`, and returns the logits (B, K, V) at the
  // positions scored (K). Without these it reads one token a row, T = 1, with `step`.
  Value Read(const Value& tokens, const Value& mask, const Value& scored);
  // Inputs of a graph, in its order.
  std::vector<Value> InputsOf(const Wiring& wiring, const Value& tokens, const Value& mask, const Value& scored) const;

  // Returns logits (B, 1, V) as (B, V), in the same memory if they are float32.
  Logits OfLastPosition(const Value& logits) const;

  const Bundle& bundle_;
  Runs prefills_, steps_;
  const Wiring of_model_, of_step_;
  Part renewed_, constant_, shared_;   // renewed by each step; constant, one row per text; constant, one row per source
  std::vector<Value> state_, source_;  // by entry of the manifest; empty before `Start` or `ReadSource`
  std::vector<Value> next_;            // what `Keep` goes on to
  Value all_real_;                     // mask (B, 1) of the last step
  std::vector<int64_t> sources_;       // source of each row
  int64_t rows_ = 0, read_ = 0;
};

}  // namespace seqlab

#endif  // SEQLAB_DECODER_H_
