// Rows of tensors, taken on the device where these lie.
#ifndef SEQLAB_ROW_SELECTION_H_
#define SEQLAB_ROW_SELECTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "bundle.h"

namespace seqlab {

// An ONNX graph of a Gather for each tensor, so that every device of onnxruntime can take them.
class RowSelection {
 public:
  // From tensors of the types of these. What is taken will lie on `provider`, the bundle's or "cpu".
  RowSelection(const Bundle& bundle, const std::vector<Value>& examples, const std::string& provider);

  // The rows of each tensor in this order; a row may occur often.
  std::vector<Value> Take(const std::vector<Value>& tensors, const std::vector<int64_t>& rows) const;

 private:
  mutable Ort::Session session_{nullptr};
  Ort::MemoryInfo memory_;
};

}  // namespace seqlab

#endif  // SEQLAB_ROW_SELECTION_H_
