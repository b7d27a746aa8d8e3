// Runs of a bundle on the texts of its golden file: seqlab_export.runner.prove, call for call.
//
// R rows, T positions, V vocabulary.
#ifndef SEQLAB_CASE_RUNNER_H_
#define SEQLAB_CASE_RUNNER_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "accuracy.h"
#include "bundle.h"
#include "cases.h"
#include "decoder.h"
#include "golden.h"
#include "row_selection.h"

namespace seqlab {

// Returns the numbers of an output, which are copied from the graph's tensors when they are needed.
using Output = std::function<Numbers()>;

// Runs a bundle on cases. Throws Refusal if the golden file lacks what a case needs, or the bundle fails.
class CaseRunner {
 public:
  CaseRunner(const Bundle& bundle, const GoldenFile& golden) : bundle_(bundle), golden_(golden) {}

  // Returns the encoder's outputs for these rows of a case, in the manifest's order.
  std::vector<Output> Encode(const Case& some, const Ids& rows);

  // Returns the decoder's outputs in the manifest's order, the logits (R, T, V) and the state, for these rows of a
  // case, read in the calls of a form.
  std::vector<Output> Decode(const std::string& form, const Case& some, const Ids& rows);

  // Returns the numbers of each output that are compared after a long text. The logits of each call give a part.
  std::vector<std::vector<double>> DecodeLong(const Case& some);

  // Returns the numbers of each output that are compared when the encoder reads `length` positions of the case's one
  // text in one call, `most` of each by the place of the output.
  std::vector<std::vector<double>> EncodeInOneCall(const Case& text, int64_t length, const std::vector<size_t>& most);

  // Returns the numbers that are compared when the decoder does: `most` of all logits, of those of the last position,
  // and of those of a step that follows.
  std::vector<double> DecodeInOneCall(const Case& text, int64_t length, size_t most);

  // Returns the logits of "whole/inputs", which the golden file has in full.
  Numbers Whole();

  // Makes a decoder read these rows of the source that "NAME/source" names, if the bundle reads one.
  void ReadSource(Decoder& decoder, const std::string& name, const Ids& rows) const;

 private:
  // Returns a decoder of these rows before their first token.
  Decoder Started(const std::string& name, const Ids& rows) const;
  // Returns `length` positions of the encoder's inputs, tokens (R, T) or features (R, T, F).
  Value Inputs(const Case& some, const Ids& rows, int64_t length) const;
  // Returns the mask (R, T) of these positions.
  static Value MaskOf(const Case& some, const Ids& rows, int64_t length);
  // Returns the logits of one call, which reads these rows and positions of tokens (R, T).
  Value Run(Decoder& decoder, const Graph& graph, const Case& some, const NpyArray& tokens, const Ids& rows,
            Span positions);
  // Returns these rows and positions of tokens (R, T).
  static Rows RowsOf(const Case& some, const NpyArray& tokens, const Ids& rows, Span positions);
  static Value StateOf(const Decoder& decoder, const TensorInfo& output);
  Numbers NumbersOf(const Value& value, const TensorInfo& output);
  Value OnHost(const Value& value);

  const Bundle& bundle_;
  const GoldenFile& golden_;
  std::map<ONNXTensorElementDataType, RowSelection> to_host_;  // copies of all rows, by the type of the tensor
};

}  // namespace seqlab

#endif  // SEQLAB_CASE_RUNNER_H_
