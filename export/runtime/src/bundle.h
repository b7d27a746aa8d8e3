// An opened bundle, which the copies of a Model share.
#ifndef SEQLAB_BUNDLE_H_
#define SEQLAB_BUNDLE_H_

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph.h"
#include "manifest.h"
#include "seqlab/runtime.h"
#include "tokenizer.h"

namespace seqlab {

// A tokenizer, or the reason why there is none: a bundle whose tokenizer the runtime lacks still runs on ids.
struct MaybeTokenizer {
  std::unique_ptr<Tokenizer> tokenizer;
  std::string reason;

  // Returns the tokenizer. Throws Refusal if there is none.
  const Tokenizer& get() const;
};

// Rows of one length, as the graphs read them.
struct Rows {
  int64_t rows = 0, length = 0;
  Ids tokens;                 // (B, T)
  std::vector<uint8_t> mask;  // (B, T)

  Value Tokens() const { return HostTensor(DType::kInt64, {rows, length}, tokens.data()); }
  Value Mask() const { return HostTensor(DType::kBool, {rows, length}, mask.data()); }
};

// Pads rows to one length. Throws Refusal if there is no row, or a row is empty or has a negative id; `what` names a
// row in the message.
Rows Padded(const std::vector<Ids>& rows, const std::string& what, bool on_the_left);

// Throws Refusal if the mask has padding between real tokens, or numbers other than 0 and 1.
void CheckPadding(const Rows& rows);

struct Bundle {
  // Opens a bundle as Model::Open does, but throws.
  Bundle(const std::string& folder, const OpenOptions& options);

  // Returns the encoder's outputs, in the manifest's order, for tokens (B, T) or features (B, T, F) and their mask
  // (B, T). Throws Refusal if there is no encoder, or the input is longer than it reads.
  std::vector<Value> Encode(const Value& inputs, const Value& mask) const;

  // Returns the tokenizer of sources. Throws Refusal if there is none.
  const Tokenizer& SourceTokenizer() const;

  std::filesystem::path folder;
  Manifest manifest;
  const Onnxruntime& onnxruntime;
  OpenOptions options;
  std::unique_ptr<const SharedWeights> weights;
  std::unique_ptr<Graph> encoder, model, step, guess;  // null if the bundle has none
  MaybeTokenizer tokenizer, source_tokenizer;          // the former alone if both sides share one
  Info info;
};

}  // namespace seqlab

#endif  // SEQLAB_BUNDLE_H_
