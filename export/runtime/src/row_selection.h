// Selection of rows of tensors, on the device that holds them.
#ifndef SEQLAB_ROW_SELECTION_H_
#define SEQLAB_ROW_SELECTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "bundle.h"

namespace seqlab {

// An ONNX graph with a Gather for each tensor, which every provider of onnxruntime can run.
class RowSelection {
 public:
  // `examples` have the types of the tensors. The selected rows are made on `provider`, the bundle's or "cpu".
  RowSelection(const Bundle& bundle, const std::vector<Value>& examples, const std::string& provider);

  // Returns these rows of each tensor, in this order; a row may occur more than once.
  std::vector<Value> Take(const std::vector<Value>& tensors, const std::vector<int64_t>& rows) const;

 private:
  mutable Ort::Session session_{nullptr};
  Ort::MemoryInfo memory_;
};

}  // namespace seqlab

#endif  // SEQLAB_ROW_SELECTION_H_
