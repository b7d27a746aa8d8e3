// One ONNX graph of a bundle, opened on a device.
#ifndef SEQLAB_GRAPH_H_
#define SEQLAB_GRAPH_H_

#include <filesystem>
#include <string>
#include <vector>

#include "manifest.h"
#include "onnxruntime.h"
#include "seqlab/runtime.h"
#include "tensors.h"

namespace seqlab {

class Graph {
 public:
  // Throws Refusal or Ort::Exception where onnxruntime cannot load the file, or no graph of that target is like it.
  Graph(const Onnxruntime& onnxruntime, const std::filesystem::path& folder, GraphInfo info, const std::string& target,
        const OpenOptions& options);

  const GraphInfo& info() const { return info_; }
  // For any thread: onnxruntime's Run is const in all but name.
  Ort::Session& session() const { return session_; }

  // Ends the runs of now and of later, from any thread.
  void End() { run_options_.SetTerminate(); }

  // Runs it once, from any thread; see Runs.
  std::vector<Value> Run(const std::vector<Value>& inputs) const;

 private:
  GraphInfo info_;
  mutable Ort::Session session_{nullptr};
  Ort::RunOptions run_options_;
  Ort::MemoryInfo host_, device_;

  friend class Runs;
};

// Runs of a graph one after the other, of one thread. On a device, what stays the same between them is bound once.
class Runs {
 public:
  // `in_place` are the entries of the state whose new value is written where the old one stands, which must be the
  // caller's alone.
  explicit Runs(const Graph& graph, const std::vector<std::string>& in_place = {});

  // The outputs in the order of the manifest, of inputs in that order. "logits" come to the host, the others stay on the
  // device, so that they can be the next run's inputs without a copy.
  std::vector<Value> Run(const std::vector<Value>& inputs);

 private:
  // Each fills in the outputs that are null, and writes the others where they stand.
  void RunOnHost(const std::vector<Value>& inputs, std::vector<Value>& outputs) const;
  void RunOnDevice(const std::vector<Value>& inputs, std::vector<Value>& outputs);
  // The input where an output is written, or null.
  const Value* WrittenOver(size_t output, const std::vector<Value>& inputs) const;

  const Graph& graph_;
  Ort::IoBinding binding_;
  std::vector<Value> bound_;           // the inputs of the last run
  std::vector<const char*> input_names_, output_names_;
  std::vector<int> places_of_inputs_;  // of each output, the input where it may be written, or -1
};

}  // namespace seqlab

#endif  // SEQLAB_GRAPH_H_
