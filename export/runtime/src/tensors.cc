#include "tensors.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <numeric>

#include "error.h"
#include "onnxruntime.h"

namespace seqlab {

size_t SizeOf(ONNXTensorElementDataType type) {
  switch (type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL:
      return 1;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16:
      return 2;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT:
      return 4;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64:
      return 8;
    default:
      Refuse(StatusCode::kDamagedBundle, "a graph gives a tensor of onnxruntime's type ", static_cast<int>(type),
             ", accepted are bool, int64, float16 and float32");
  }
}

namespace {

Ort::Value Empty(ONNXTensorElementDataType type, const std::vector<int64_t>& dims) {
  Ort::AllocatorWithDefaultOptions allocator;
  return Ort::Value::CreateTensor(allocator, dims.data(), dims.size(), type);
}

// Makes a tensor of zeros, whose memory the system provides when it is first touched.
Value Zeros(ONNXTensorElementDataType type, const std::vector<int64_t>& dims, size_t count) {
  const std::shared_ptr<void> memory(std::calloc(std::max<size_t>(count, 1), SizeOf(type)), std::free);
  if (memory == nullptr) throw std::bad_alloc();
  auto* value = new Ort::Value(
      Ort::Value::CreateTensor(MemoryOf("cpu"), memory.get(), count * SizeOf(type), dims.data(), dims.size(), type));
  return {value, [memory](const Ort::Value* made) { delete made; }};
}

Value Shared(Ort::Value&& value) { return std::make_shared<const Ort::Value>(std::move(value)); }

size_t CountOf(const Value& value) { return value->GetTensorTypeAndShapeInfo().GetElementCount(); }

template <typename Number, typename Stored>
void Append(const Value& value, int64_t first, int64_t count, std::vector<Number>& numbers) {
  const Stored* data = value->GetTensorData<Stored>() + first;
  numbers.insert(numbers.end(), data, data + count);
}

template <typename Number>
std::vector<Number> Numbers(const Value& value, int64_t first, int64_t count) {
  std::vector<Number> numbers;
  switch (const auto type = TypeOf(value); type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL:
      Append<Number, bool>(value, first, count, numbers);
      break;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64:
      Append<Number, int64_t>(value, first, count, numbers);
      break;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16: {
      const auto* data = value->GetTensorData<Ort::Float16_t>() + first;
      for (int64_t place = 0; place < count; ++place) numbers.push_back(data[place].ToFloat());
      break;
    }
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT:
      Append<Number, float>(value, first, count, numbers);
      break;
    default:
      SizeOf(type);
  }
  return numbers;
}

}  // namespace

ONNXTensorElementDataType TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL;
    case DType::kInt64:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64;
    case DType::kFloat16:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16;
    case DType::kFloat32:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
  }
  return ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
}

ONNXTensorElementDataType TypeOf(const Value& value) { return value->GetTensorTypeAndShapeInfo().GetElementType(); }

Value HostTensor(DType dtype, const std::vector<int64_t>& dims, const void* data) {
  Ort::Value value = Empty(TypeOf(dtype), dims);
  const size_t count = value.GetTensorTypeAndShapeInfo().GetElementCount();
  if (count > 0) std::memcpy(value.GetTensorMutableRawData(), data, count * SizeOf(TypeOf(dtype)));
  return Shared(std::move(value));
}

Value FloatTensor(DType dtype, const std::vector<int64_t>& dims, const std::vector<float>& numbers) {
  if (dtype == DType::kFloat32) return HostTensor(dtype, dims, numbers.data());
  std::vector<Ort::Float16_t> halves;
  for (const float number : numbers) halves.emplace_back(number);
  return HostTensor(dtype, dims, halves.data());
}

Value FilledTensor(DType dtype, const std::vector<int64_t>& dims, double number) {
  const auto product = std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
  const auto count = static_cast<size_t>(product);
  if (number == 0) return Zeros(TypeOf(dtype), dims, count);
  Ort::Value value = Empty(TypeOf(dtype), dims);
  if (dtype == DType::kBool) std::fill_n(value.GetTensorMutableData<bool>(), count, number != 0);
  if (dtype == DType::kInt64) std::fill_n(value.GetTensorMutableData<int64_t>(), count, static_cast<int64_t>(number));
  if (dtype == DType::kFloat32) std::fill_n(value.GetTensorMutableData<float>(), count, static_cast<float>(number));
  if (dtype == DType::kFloat16) {
    std::fill_n(value.GetTensorMutableData<Ort::Float16_t>(), count, Ort::Float16_t(static_cast<float>(number)));
  }
  return Shared(std::move(value));
}

std::vector<int64_t> Dims(const Value& value) { return value->GetTensorTypeAndShapeInfo().GetShape(); }

void CheckDims(const Value& value, const std::vector<int64_t>& dims) {
  if (const std::vector<int64_t> found = Dims(value); found != dims) {
    Refuse(StatusCode::kDamagedBundle, "a graph gives an output of shape (", Listed(found), "), its manifest says (",
           Listed(dims), ")");
  }
}

int64_t MostReal(const Value& mask) {
  const std::vector<int64_t> dims = Dims(mask);
  const bool* row = mask->GetTensorData<bool>();
  int64_t most = 0;
  for (int64_t number = 0; number < dims[0]; ++number, row += dims[1]) {
    most = std::max<int64_t>(most, std::count(row, row + dims[1], true));
  }
  return most;
}

std::vector<double> Doubles(const Value& value) {
  return Numbers<double>(value, 0, static_cast<int64_t>(CountOf(value)));
}

std::vector<float> Floats(const Value& value) { return Floats(value, 0, static_cast<int64_t>(CountOf(value))); }

std::vector<float> Floats(const Value& value, int64_t first, int64_t count) {
  return Numbers<float>(value, first, count);
}

}  // namespace seqlab
