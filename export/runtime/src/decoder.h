// A bundle as a decoder: the state of some rows of text, which the graphs read and renew on the device.
#ifndef SEQLAB_DECODER_H_
#define SEQLAB_DECODER_H_

#include <memory>
#include <string>
#include <vector>

#include "bundle.h"
#include "row_selection.h"

namespace seqlab {

// Scores of the next token, (B, V), where a graph wrote them.
struct Logits {
  int64_t rows = 0, vocab_size = 0;
  std::shared_ptr<const float> values;

  const float* Row(int64_t row) const { return values.get() + row * vocab_size; }
  // The same in float64.
  std::vector<double> Doubles(int64_t row) const { return {Row(row), Row(row) + vocab_size}; }
};

// Logits of numbers that nothing else holds.
Logits ToLogits(int64_t rows, int64_t vocab_size, std::vector<float> numbers);

class Decoder {
 public:
  // Throws Refusal where the bundle has no decoder.
  explicit Decoder(const Bundle& bundle);

  const Bundle& bundle() const { return bundle_; }

  // Reads a source (B, M) or (B, M, F) and its mask (B, M): each `Start` is from here.
  void ReadSource(const Value& source, const Value& mask);

  // Throws Refusal where an id is outside the vocabulary, or a text of `read` tokens is longer than the model reads.
  void CheckReadable(const Ids& tokens, int64_t read) const;

  // Puts so many rows before their first token. Throws Refusal where they need a source and have read none, or another
  // number of sources.
  void Start(int64_t rows);

  // Reads tokens (B, T): logits (B, T, V). `graph` is the bundle's `model`, or its `step` where T = 1.
  Value Run(const Graph& graph, const Rows& rows);

  // Starts and reads prompts: the logits after each.
  Logits Prefill(const std::vector<Ids>& prompts);
  // Reads one more token a row.
  Logits Step(const Ids& tokens);

  // Takes these rows for the state's rows. What was read of a source moves only where the sources do.
  void Select(const std::vector<int64_t>& rows);

  // The entry of the state of this name, on the device.
  const Value& State(const std::string& name) const;

 private:
  int64_t vocab_size() const { return *bundle_.manifest.vocab_size; }
  // Where each input of a graph comes from and each output goes: an entry of the state, or one of these.
  enum : int { kTokens = -1, kMask = -2, kLogits = -3 };
  struct Wiring {
    std::vector<int> inputs, outputs;
  };
  Wiring WiringOf(const GraphInfo& info) const;
  // Entries of the state, and what takes their rows, which is made when first needed.
  struct Part {
    std::vector<size_t> entries;
    std::unique_ptr<RowSelection> selection;
  };
  // Takes these of `count` rows.
  void Take(Part& part, const std::vector<int64_t>& rows, int64_t count);
  // Of entries that have a row a source, for all rows that follow each other.
  void TakeSources(const std::vector<int64_t>& rows);
  // Reads tokens (B, T) under their mask (B, T): logits (B, T, V).
  Value Read(const Graph& graph, const Value& tokens, const Value& mask, int64_t length);

  const Bundle& bundle_;
  Runs steps_;
  const Wiring of_model_, of_step_;
  Part renewed_, constant_, shared_;   // by a step; by none, with a row each, or with one for all rows of a source
  std::vector<Value> state_, source_;  // by entries of the manifest; empty before `Start` or a source
  Value all_real_;                     // the mask (B, 1) of the last step
  std::vector<int64_t> sources_;       // of each row
  int64_t rows_ = 0, read_ = 0;
};

}  // namespace seqlab

#endif  // SEQLAB_DECODER_H_
