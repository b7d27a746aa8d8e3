// Making and reading tensors of onnxruntime on the host.
#ifndef SEQLAB_TENSORS_H_
#define SEQLAB_TENSORS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "manifest.h"
#include "onnxruntime.h"
#include "seqlab/runtime.h"

namespace seqlab {

// A tensor on the host or on a device, with shared ownership.
using Value = std::shared_ptr<const Ort::Value>;

// Makes a tensor with a copy of `data`.
Value HostTensor(DType dtype, const std::vector<int64_t>& dims, const void* data);

// Makes a tensor of floating-point numbers, as float16 or float32.
Value FloatTensor(DType dtype, const std::vector<int64_t>& dims, const std::vector<float>& numbers);

// Makes a tensor whose elements are all `value`.
Value FilledTensor(DType dtype, const std::vector<int64_t>& dims, double value);

// Returns onnxruntime's type.
ONNXTensorElementDataType TypeOf(DType dtype);
ONNXTensorElementDataType TypeOf(const Value& value);

// Returns the size of an element in bytes. Throws Refusal if the type is one that bundles do not have.
size_t SizeOf(ONNXTensorElementDataType type);

std::vector<int64_t> Dims(const Value& value);

// Throws Refusal if the dims are others.
void CheckDims(const Value& value, const std::vector<int64_t>& dims);

// Returns the number of real tokens in the longest row of a mask (B, T).
int64_t MostReal(const Value& mask);

// Returns all numbers. Throws Refusal if their type is one that bundles do not have.
std::vector<double> Doubles(const Value& value);
std::vector<float> Floats(const Value& value);

// Returns `count` numbers from `first` on.
std::vector<float> Floats(const Value& value, int64_t first, int64_t count);

}  // namespace seqlab

#endif  // SEQLAB_TENSORS_H_
