// Weights that several graphs of a bundle have: one copy of each in memory, as stored and as packed for products.
#ifndef SEQLAB_SHARED_WEIGHTS_H_
#define SEQLAB_SHARED_WEIGHTS_H_

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "graph_file.h"
#include "onnxruntime.h"

namespace seqlab {

class SharedWeights {
 public:
  // Finds the matrices that at least two of these graphs have. Throws Refusal if one is no ONNX graph.
  SharedWeights(const std::filesystem::path& folder, const std::vector<std::string>& graphs);
  ~SharedWeights();
  SharedWeights(const SharedWeights&) = delete;
  SharedWeights& operator=(const SharedWeights&) = delete;

  // Opens a graph, whose session must not outlive this object.
  Ort::Session Open(const Ort::Env& env, const std::string& graph, Ort::SessionOptions settings) const;

 private:
  std::filesystem::path folder_;
  void* file_ = nullptr;  // mapped
  size_t size_ = 0;
  std::map<std::string, std::map<std::string, Ort::Value>> tensors_;  // by graph and by name
  OrtPrepackedWeightsContainer* packed_ = nullptr;
};

}  // namespace seqlab

#endif  // SEQLAB_SHARED_WEIGHTS_H_
