// One copy in memory of the weights that several graphs of a bundle multiply by.
#ifndef SEQLAB_SHARED_WEIGHTS_H_
#define SEQLAB_SHARED_WEIGHTS_H_

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "onnxruntime.h"

namespace seqlab {

// onnxruntime arranges the weight of a product anew when it loads a graph, and reads the stored weight only then. The
// graphs share the arranged weights if they multiply by the same operator.
class SharedWeights {
 public:
  // Finds the matrices that at least two of these graphs store at the same place. Throws Refusal if a file is no ONNX
  // graph.
  SharedWeights(const std::filesystem::path& folder, const std::vector<std::string>& graphs);

  const std::filesystem::path& folder() const { return folder_; }

  // Opens a graph. Its session must not outlive this object. Throws Ort::Exception if onnxruntime cannot load it.
  Ort::Session Open(const Ort::Env& env, const std::string& graph, Ort::SessionOptions settings) const;

 private:
  using ByName = std::map<std::string, Ort::Value>;

  const std::filesystem::path folder_;
  std::shared_ptr<void> stored_;  // the file of weights, mapped
  size_t size_ = 0;
  std::map<std::string, ByName> tensors_;  // by graph
  std::shared_ptr<OrtPrepackedWeightsContainer> arranged_;
};

}  // namespace seqlab

#endif  // SEQLAB_SHARED_WEIGHTS_H_
