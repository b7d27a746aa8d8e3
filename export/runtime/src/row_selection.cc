#include "row_selection.h"

#include <string>

#include "error.h"

namespace seqlab {
namespace {

// The part of Protocol Buffers' wire format (protobuf.dev/programming-guides/encoding) that a small graph needs. The
// field numbers are those of onnx.proto.
std::string Varint(uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>(number | 0x80);
  return bytes + static_cast<char>(number);
}

std::string Entry(uint64_t field, uint64_t number) { return Varint(field << 3) + Varint(number); }

std::string Entry(uint64_t field, const std::string& bytes) {
  return Varint(field << 3 | 2) + Varint(bytes.size()) + bytes;
}

// Describes a tensor; onnxruntime numbers the types as ONNX does.
std::string Tensor(const std::string& name, ONNXTensorElementDataType type) {
  return Entry(1, name) + Entry(2, Entry(1, Entry(1, static_cast<uint64_t>(type))));
}

std::string From(size_t place) { return Join("from_", place); }
std::string To(size_t place) { return Join("to_", place); }

std::string Gathers(const std::vector<Value>& examples) {
  std::string graph = Entry(2, "rows") + Entry(11, Tensor("rows", ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64));
  for (size_t place = 0; place < examples.size(); ++place) {
    const ONNXTensorElementDataType type = TypeOf(examples[place]);
    graph += Entry(1, Entry(1, From(place)) + Entry(1, "rows") + Entry(2, To(place)) + Entry(4, "Gather"));
    graph += Entry(11, Tensor(From(place), type)) + Entry(12, Tensor(To(place), type));
  }
  constexpr uint64_t kIrVersion = 8, kOpset = 13;  // the first in which Gather is as it is now
  return Entry(1, kIrVersion) + Entry(7, graph) + Entry(8, Entry(1, "") + Entry(2, kOpset));
}

}  // namespace

RowSelection::RowSelection(const Bundle& bundle, const std::vector<Value>& examples, const std::string& provider)
    : memory_(MemoryOf(provider)) {
  const std::string graph = Gathers(examples);
  session_ = Ort::Session(bundle.onnxruntime.env, graph.data(), graph.size(), SettingsFor(bundle.options));
}

std::vector<Value> RowSelection::Take(const std::vector<Value>& tensors, const std::vector<int64_t>& rows) const {
  const Value order = HostTensor(DType::kInt64, {static_cast<int64_t>(rows.size())}, rows.data());
  Ort::IoBinding binding(session_);
  binding.BindInput("rows", *order);
  for (size_t place = 0; place < tensors.size(); ++place) {
    binding.BindInput(From(place).c_str(), *tensors[place]);
    binding.BindOutput(To(place).c_str(), memory_);
  }
  session_.Run(Ort::RunOptions(), binding);
  std::vector<Value> taken;
  for (Ort::Value& value : binding.GetOutputValues())
    taken.push_back(std::make_shared<const Ort::Value>(std::move(value)));
  return taken;
}

}  // namespace seqlab
