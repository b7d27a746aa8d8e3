// Tensors of onnxruntime on the host: made and read.
#ifndef SEQLAB_TENSORS_H_
#define SEQLAB_TENSORS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "manifest.h"
#include "onnxruntime.h"
#include "seqlab/runtime.h"

namespace seqlab {

// A tensor that several owners hold, on the host or on a device.
using Value = std::shared_ptr<const Ort::Value>;

// A tensor with these dims and the values of `data`, which are copied.
Value HostTensor(DType dtype, const std::vector<int64_t>& dims, const void* data);

// One of floating-point numbers, as float16 or float32.
Value FloatTensor(DType dtype, const std::vector<int64_t>& dims, const std::vector<float>& numbers);

// One whose elements are all `value`.
Value FilledTensor(DType dtype, const std::vector<int64_t>& dims, double value);

// What onnxruntime calls a type.
ONNXTensorElementDataType TypeOf(DType dtype);
ONNXTensorElementDataType TypeOf(const Value& value);

std::vector<int64_t> Dims(const Value& value);

// Throws Refusal where its dims are others.
void CheckDims(const Value& value, const std::vector<int64_t>& dims);

// How many tokens of a row are real, of the longest row of a mask (B, T).
int64_t MostReal(const Value& mask);

// All numbers. Throws Refusal where it is of a type that bundles do not have.
std::vector<double> Doubles(const Value& value);

// So many floating-point numbers from `first` on.
std::vector<float> Floats(const Value& value, int64_t first, int64_t count);

}  // namespace seqlab

#endif  // SEQLAB_TENSORS_H_
