// What stands in an ONNX file, read before onnxruntime reads it, as seqlab_export.runner.graph_file does.
#ifndef SEQLAB_GRAPH_FILE_H_
#define SEQLAB_GRAPH_FILE_H_

#include <cstdint>
#include <filesystem>
#include <string>

namespace seqlab {

// Refuses a graph that may never end: nodes of other operators than a target's, functions of its own, and graphs within a
// node, but for a Scan's, which runs as often as its input is long.
void CheckGraph(const std::filesystem::path& path, const std::string& target);

// How many bytes a graph's weights reach to in the file where they stand. Throws Refusal where it is no ONNX graph.
int64_t EndOfWeights(const std::filesystem::path& path);

}  // namespace seqlab

#endif  // SEQLAB_GRAPH_FILE_H_
