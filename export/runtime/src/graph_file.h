// The content of an ONNX file, checked before onnxruntime reads it, as in seqlab_export.runner.graph_file.
#ifndef SEQLAB_GRAPH_FILE_H_
#define SEQLAB_GRAPH_FILE_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace seqlab {

// A tensor of a graph that is stored in another file, as the graph describes it.
struct StoredTensor {
  std::string name, file;
  int32_t type = 0;  // in the numbering of onnx.proto, which is onnxruntime's
  std::vector<int64_t> dims;
  int64_t offset = 0, length = 0;  // in the file, in bytes
};

// Throws Refusal if a graph may never end: if it has operators that its target does not have, functions of its own, or
// a graph within a node. A Scan may have one, which runs as often as its input is long.
void CheckGraph(const std::filesystem::path& path, const std::string& target);

// Throws Refusal if a graph has a product or attention that onnxruntime computes on the CPU whatever the provider,
// between copies from and to the device.
void CheckForCuda(const std::filesystem::path& path, const std::string& precision);

// Returns the tensors of a graph that are stored in other files. Throws Refusal if `path` is no ONNX graph.
std::vector<StoredTensor> StoredTensors(const std::filesystem::path& path);

// Returns the offset at which a graph's weights end in the file of weights. Throws Refusal if `path` is no ONNX graph.
int64_t EndOfWeights(const std::filesystem::path& path);

}  // namespace seqlab

#endif  // SEQLAB_GRAPH_FILE_H_
