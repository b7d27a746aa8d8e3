// An opened bundle: what Model shares between its copies.
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

// A tokenizer, or why there is none: a bundle whose tokenizer the runtime does not have still runs on ids.
struct MaybeTokenizer {
  std::unique_ptr<Tokenizer> tokenizer;
  std::string reason;

  // Throws Refusal where there is none.
  const Tokenizer& get() const;
};

// Rows of one length as the graphs take them.
struct Rows {
  int64_t rows = 0, length = 0;
  Ids tokens;                 // (B, T)
  std::vector<uint8_t> mask;  // (B, T)

  Value Tokens() const { return HostTensor(DType::kInt64, {rows, length}, tokens.data()); }
  Value Mask() const { return HostTensor(DType::kBool, {rows, length}, mask.data()); }
};

// Throws Refusal where there are none, or a row is empty or has a negative id; `what` names a row.
Rows Padded(const std::vector<Ids>& rows, const std::string& what, bool on_the_left);

// Throws Refusal where the mask has a hole, or other numbers than 0 and 1.
void CheckPadding(const Rows& rows);

struct Bundle {
  Bundle(const std::string& folder, const OpenOptions& options);

  // The encoder's outputs of tokens (B, T) or features (B, T, F) and their mask (B, T), in the manifest's order. Throws
  // Refusal where there is no encoder, or the input is longer than it reads.
  std::vector<Value> Encode(const Value& inputs, const Value& mask) const;

  const Tokenizer& SourceTokenizer() const;

  std::filesystem::path folder;
  Manifest manifest;
  const Onnxruntime& onnxruntime;
  OpenOptions options;
  std::unique_ptr<Graph> encoder, model, step;  // null where there is none
  MaybeTokenizer tokenizer, source_tokenizer;   // of one for both sides only the former
  Info info;
};

}  // namespace seqlab

#endif  // SEQLAB_BUNDLE_H_
