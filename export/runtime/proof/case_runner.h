// What a bundle makes of the texts of its golden file: seqlab_export.runner.prove, call for call.
//
// R rows, T positions, V vocabulary.
#ifndef SEQLAB_CASE_RUNNER_H_
#define SEQLAB_CASE_RUNNER_H_

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

// Throws Refusal where the golden file lacks what a case needs, or the bundle fails.
class CaseRunner {
 public:
  CaseRunner(const Bundle& bundle, const GoldenFile& golden) : bundle_(bundle), golden_(golden) {}

  // The encoder's outputs of these rows of a case, in the manifest's order.
  std::vector<Numbers> Encode(const Case& some, const Ids& rows);

  // The same of a decoder that reads them in the calls of a form: the logits (R, T, V), and the state after them.
  std::vector<Numbers> Decode(const std::string& form, const Case& some, const Ids& rows);

  // What counts of each of these after a long text. Of the logits of each call a part is taken: they are many.
  std::vector<std::vector<double>> DecodeLong(const Case& some);

  // What counts of each output of an encoder that reads so many positions of the one text of a case in one call, `most`
  // numbers by the place of the output.
  std::vector<std::vector<double>> EncodeInOneCall(const Case& text, int64_t length, const std::vector<size_t>& most);

  // What counts of the logits of a decoder that does: `most` numbers of them, of the last position, and of a step that
  // follows.
  std::vector<double> DecodeInOneCall(const Case& text, int64_t length, size_t most);

  // The logits of "whole/inputs", of which the golden file has all.
  Numbers Whole();

  // Gives a decoder these rows of the source that is named in "NAME/source", where the bundle reads one.
  void ReadSource(Decoder& decoder, const std::string& name, const Ids& rows) const;

 private:
  // A decoder of so many rows before their first token.
  Decoder Started(const std::string& name, const Ids& rows) const;
  // The encoder's inputs, as many positions of them: tokens (R, T) or features (R, T, F), and their mask (R, T).
  Value Inputs(const Case& some, const Ids& rows, int64_t length) const;
  static Value MaskOf(const Case& some, const Ids& rows, int64_t length);
  // The logits of one call: these rows and positions of tokens (R, T).
  Numbers Read(Decoder& decoder, const Graph& graph, const Case& some, const NpyArray& tokens, const Ids& rows,
               Span positions);
  Value Run(Decoder& decoder, const Graph& graph, const Case& some, const NpyArray& tokens, const Ids& rows,
            Span positions);
  Numbers StateOf(const Decoder& decoder, const TensorInfo& output);
  Numbers NumbersOf(const Value& value, const TensorInfo& output);
  Value OnHost(const Value& value);

  const Bundle& bundle_;
  const GoldenFile& golden_;
  std::map<ONNXTensorElementDataType, RowSelection> to_host_;  // of all rows, by the type of what is taken
};

}  // namespace seqlab

#endif  // SEQLAB_CASE_RUNNER_H_
