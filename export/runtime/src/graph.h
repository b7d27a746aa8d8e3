// An ONNX graph of a bundle, opened on a device.
#ifndef SEQLAB_GRAPH_H_
#define SEQLAB_GRAPH_H_

#include <string>
#include <vector>

#include "manifest.h"
#include "onnxruntime.h"
#include "seqlab/runtime.h"
#include "shared_weights.h"
#include "tensors.h"

namespace seqlab {

class Graph {
 public:
  // Throws Refusal or Ort::Exception if onnxruntime cannot load the file, or it is no graph of this target or device.
  // `weights` must outlive it.
  Graph(const Onnxruntime& onnxruntime, const SharedWeights& weights, GraphInfo info, const Manifest& manifest,
        const OpenOptions& options);

  const GraphInfo& info() const { return info_; }
  // Returns the session, which any thread may run: onnxruntime's Run is thread-safe, though not const.
  Ort::Session& session() const { return session_; }

  // Makes every later run on the CPU give back the memory that it leaves unused, at the cost of asking for it again.
  void GiveMemoryBack() { run_options_.AddConfigEntry("memory.enable_memory_arena_shrinkage", "cpu:0"); }

  // Ends the current runs and all later ones, from any thread.
  void End() { run_options_.SetTerminate(); }

  // Runs the graph once, from any thread; see Runs.
  std::vector<Value> Run(const std::vector<Value>& inputs) const;

 private:
  GraphInfo info_;
  mutable Ort::Session session_{nullptr};
  Ort::RunOptions run_options_;
  Ort::MemoryInfo host_, device_;

  friend class Runs;
};

// Consecutive runs of a graph, in one thread. On a device, an input that stays the same between them is bound once.
class Runs {
 public:
  // `in_place` names the entries of the state whose new value overwrites the old one, which nothing but the caller may
  // hold.
  explicit Runs(const Graph& graph, const std::vector<std::string>& in_place = {});

  // Runs the graph on inputs in the manifest's order and returns the outputs in that order. "logits" come to the host;
  // the others stay on the device, where the next run reads them without a copy.
  std::vector<Value> Run(const std::vector<Value>& inputs);

 private:
  // Run the graph: they make the outputs that are null, and overwrite the others.
  void RunOnHost(const std::vector<Value>& inputs, std::vector<Value>& outputs) const;
  void RunOnDevice(const std::vector<Value>& inputs, std::vector<Value>& outputs);
  // Returns the input that an output overwrites, or null.
  const Value* WrittenOver(size_t output, const std::vector<Value>& inputs) const;

  const Graph& graph_;
  Ort::IoBinding binding_;
  std::vector<Value> bound_;  // inputs of the last run
  std::vector<const char*> input_names_, output_names_;
  std::vector<int> places_of_inputs_;  // by output: the input that it may overwrite, or -1
};

}  // namespace seqlab

#endif  // SEQLAB_GRAPH_H_
