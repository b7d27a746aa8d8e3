#include "graph_file.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "error.h"
#include "files.h"
#include "operators.h"

namespace seqlab {
namespace {

constexpr int kDeepest = 8;  // graphs within graphs

// The numbers of the fields in onnx.proto.
constexpr uint32_t kModelGraph = 7, kModelFunctions = 25, kGraphNode = 1, kGraphInitializer = 5;
constexpr uint32_t kNodeOperator = 4, kNodeAttribute = 5, kNodeDomain = 7;
constexpr uint32_t kAttributeTensor = 5, kAttributeGraph = 6, kAttributeTensors = 10, kAttributeGraphs = 11;
constexpr uint32_t kTensorDims = 1, kTensorType = 2, kTensorName = 8, kTensorExternal = 13, kEntryKey = 1,
                   kEntryValue = 2;

[[noreturn]] void RefuseMessage() { Refuse(StatusCode::kDamagedBundle, "it is not what protobuf writes"); }

// Removes a varint, which has 7 bits a byte, from the front of the message.
uint64_t TakeNumber(std::string_view& message) {
  uint64_t found = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (message.empty()) break;
    const auto byte = static_cast<unsigned char>(message.front());
    message.remove_prefix(1);
    found |= static_cast<uint64_t>(byte & 127) << shift;
    if (byte < 128) return found;
  }
  RefuseMessage();
}

// Calls `take` with the number and the bytes of each length-delimited field of a message: texts, messages, lists. Calls
// `on_number` with the number and the value of each varint.
void ForEachField(
    std::string_view message, const std::function<void(uint32_t, std::string_view)>& take,
    const std::function<void(uint32_t, uint64_t)>& on_number = [](uint32_t, uint64_t) {}) {
  while (!message.empty()) {
    const uint64_t tag = TakeNumber(message);
    const uint64_t kind = tag & 7;
    const auto number = static_cast<uint32_t>(tag) >> 3;
    if (kind == 0) {
      on_number(number, TakeNumber(message));
      continue;
    }
    if (kind != 1 && kind != 2 && kind != 5) RefuseMessage();
    const uint64_t size = kind == 1 ? 8 : kind == 5 ? 4 : TakeNumber(message);
    if (size > message.size()) RefuseMessage();
    if (kind == 2) take(number, message.substr(0, size));
    message.remove_prefix(size);
  }
}

// A walk over the nodes and tensors of an ONNX file.
class Walk {
 public:
  // Receives the operator of a node, as domain::Operator for domains other than ONNX's own, and whether it has a graph.
  std::function<void(const std::string&, bool)> on_node = [](const std::string&, bool) {};
  // Receives the message of a tensor.
  std::function<void(std::string_view)> on_tensor = [](std::string_view) {};

  void File(const std::filesystem::path& path) const {
    const std::string content = ReadFile(path);
    ForEachField(content, [this](uint32_t number, std::string_view value) {
      if (number == kModelFunctions) {
        Refuse(StatusCode::kDamagedBundle, "it has functions of its own, which no graph of a bundle has");
      }
      if (number == kModelGraph) Graph(value, 1);
    });
  }

 private:
  void Graph(std::string_view graph, int depth) const {
    if (depth > kDeepest) Refuse(StatusCode::kDamagedBundle, "it is nested deeper than ", kDeepest, " graphs");
    ForEachField(graph, [this, depth](uint32_t number, std::string_view value) {
      if (number == kGraphInitializer) on_tensor(value);
      if (number == kGraphNode) Node(value, depth);
    });
  }

  void Node(std::string_view node, int depth) const {
    std::string_view operator_name, domain;
    std::vector<std::string_view> graphs;
    ForEachField(node, [&](uint32_t number, std::string_view value) {
      if (number == kNodeOperator) operator_name = value;
      if (number == kNodeDomain) domain = value;
      if (number != kNodeAttribute) return;
      ForEachField(value, [&](uint32_t part, std::string_view inner) {
        if (part == kAttributeGraph || part == kAttributeGraphs) graphs.push_back(inner);
        if (part == kAttributeTensor || part == kAttributeTensors) on_tensor(inner);
      });
    });
    const bool standard = domain.empty() || domain == "ai.onnx";
    on_node(standard ? std::string(operator_name) : Join(domain, "::", operator_name), !graphs.empty());
    for (const std::string_view graph : graphs) Graph(graph, depth + 1);
  }
};

// Reads an offset or a length, which are decimal.
int64_t WholeNumber(std::string_view text) {
  if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != std::string_view::npos)
    RefuseMessage();
  return std::stoll(std::string(text));
}

// Calls `reads`, and puts the file's name before the message of a Refusal.
void Naming(const std::filesystem::path& path, const std::function<void()>& reads) {
  try {
    reads();
  } catch (const Refusal& refusal) {
    throw Refusal(Join(path.string(), " is no graph of a bundle: ", refusal.what()), StatusCode::kDamagedBundle);
  }
}

std::set<std::string> OperatorsOf(const std::string& target) {
  const nlohmann::json table = nlohmann::json::parse(kOperators);
  auto found = table["every target"].get<std::set<std::string>>();
  found.merge(table[target].get<std::set<std::string>>());
  return found;
}

}  // namespace

void CheckGraph(const std::filesystem::path& path, const std::string& target) {
  const std::set<std::string> operators = OperatorsOf(target);
  Walk walk;
  walk.on_node = [&](const std::string& name, bool has_graph) {
    if (operators.count(name) == 0) {
      Refuse(StatusCode::kDamagedBundle, "it has the operator ", name, ", which no graph of target ", target, " has");
    }
    if (has_graph && name != "Scan") {
      Refuse(StatusCode::kDamagedBundle, "it has a ", name, " with a graph of its own, which only Scan has");
    }
  };
  Naming(path, [&] { walk.File(path); });
}

void CheckForCuda(const std::filesystem::path& path, const std::string& precision) {
  const nlohmann::json table = nlohmann::json::parse(kOperators);
  auto lacks = table["not on CUDA"].get<std::set<std::string>>();
  if (precision != "fp16") lacks.merge(table["on CUDA in fp16"].get<std::set<std::string>>());
  Walk walk;
  walk.on_node = [&](const std::string& name, bool) {
    if (lacks.count(name) == 0) return;
    Refuse(StatusCode::kUnsupported, path.string(), " has ", name, ", which CUDA does not compute in ", precision,
           "; export the model with --target cuda-graph, in a precision other than int8");
  };
  walk.File(path);
}

std::vector<StoredTensor> StoredTensors(const std::filesystem::path& path) {
  std::vector<StoredTensor> found;
  Walk walk;
  walk.on_tensor = [&found](std::string_view message) {
    StoredTensor tensor;
    const auto take_number = [&tensor](uint32_t number, uint64_t value) {
      if (number == kTensorDims) tensor.dims.push_back(static_cast<int64_t>(value));
      if (number == kTensorType) tensor.type = static_cast<int32_t>(value);
    };
    bool stored = false;
    const auto take = [&tensor, &stored](uint32_t number, std::string_view entry) {
      if (number == kTensorName) tensor.name = entry;
      if (number != kTensorExternal) return;
      stored = true;
      std::string_view key, value;
      ForEachField(entry, [&key, &value](uint32_t part, std::string_view text) {
        if (part == kEntryKey) key = text;
        if (part == kEntryValue) value = text;
      });
      if (key == "location") tensor.file = value;
      if (key == "offset") tensor.offset = WholeNumber(value);
      if (key == "length") tensor.length = WholeNumber(value);
    };
    ForEachField(message, take, take_number);
    if (stored) found.push_back(std::move(tensor));
  };
  Naming(path, [&] { walk.File(path); });
  return found;
}

int64_t EndOfWeights(const std::filesystem::path& path) {
  int64_t end = 0;
  for (const StoredTensor& tensor : StoredTensors(path)) end = std::max(end, tensor.offset + tensor.length);
  return end;
}

}  // namespace seqlab
