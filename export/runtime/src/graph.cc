#include "graph.h"

#include "error.h"
#include "graph_file.h"

namespace seqlab {

Graph::Graph(const Onnxruntime& onnxruntime, const SharedWeights& weights, GraphInfo info, const Manifest& manifest,
             const OpenOptions& options)
    : info_(std::move(info)), host_(MemoryOf("cpu")), device_(MemoryOf(options.provider)) {
  run_options_.SetRunLogSeverityLevel(
      ORT_LOGGING_LEVEL_FATAL);  // errors are thrown, and reported where they are caught
  const std::filesystem::path path = weights.folder() / info_.file;
  CheckGraph(path, manifest.target);
  if (options.provider == "cuda") CheckForCuda(path, manifest.precision);
  try {
    session_ = weights.Open(onnxruntime.env, info_.file, SettingsFor(options));
  } catch (const Ort::Exception& error) {
    if (IsOutOfMemory(error.what())) throw;
    RefuseForDevice(error.what());
    Refuse(StatusCode::kDamagedBundle, "onnxruntime cannot load ", path.string(), ": ", error.what());
  }
}

std::vector<Value> Graph::Run(const std::vector<Value>& inputs) const { return Runs(*this).Run(inputs); }

Runs::Runs(const Graph& graph, const std::vector<std::string>& in_place) : graph_(graph), binding_(graph.session_) {
  for (const TensorInfo& input : graph.info_.inputs) input_names_.push_back(input.name.c_str());
  for (const TensorInfo& output : graph.info_.outputs) {
    output_names_.push_back(output.name.c_str());
    int input = -1;
    for (const std::string& entry : in_place) {
      if (output.name != "new_state_" + entry) continue;
      for (size_t place = 0; place < graph.info_.inputs.size(); ++place) {
        if (graph.info_.inputs[place].name == "state_" + entry) input = static_cast<int>(place);
      }
    }
    places_of_inputs_.push_back(input);
  }
}

std::vector<Value> Runs::Run(const std::vector<Value>& inputs) {
  std::vector<Value> outputs;
  for (size_t place = 0; place < output_names_.size(); ++place) {
    const Value* old = WrittenOver(place, inputs);
    outputs.push_back(old != nullptr ? *old : nullptr);
  }
  if (graph_.device_ == graph_.host_) {
    RunOnHost(inputs, outputs);
  } else {
    RunOnDevice(inputs, outputs);
  }
  return outputs;
}

void Runs::RunOnHost(const std::vector<Value>& inputs, std::vector<Value>& outputs) const {
  std::vector<const OrtValue*> given;
  for (const Value& input : inputs) given.push_back(*input);
  std::vector<OrtValue*> made;
  for (const Value& output : outputs)
    made.push_back(output == nullptr ? nullptr : const_cast<OrtValue*>(static_cast<const OrtValue*>(*output)));
  Ort::ThrowOnError(Ort::GetApi().Run(graph_.session_, graph_.run_options_, input_names_.data(), given.data(),
                                      given.size(), output_names_.data(), made.size(), made.data()));
  for (size_t place = 0; place < made.size(); ++place) {
    if (outputs[place] == nullptr) outputs[place] = std::make_shared<const Ort::Value>(made[place]);
  }
}

void Runs::RunOnDevice(const std::vector<Value>& inputs, std::vector<Value>& outputs) {
  bound_.resize(inputs.size());
  for (size_t place = 0; place < inputs.size(); ++place) {
    if (inputs[place] == bound_[place]) continue;
    binding_.BindInput(input_names_[place], *inputs[place]);
    bound_[place] = inputs[place];
  }
  // The outputs of the last run are still bound, and would be overwritten.
  for (size_t place = 0; place < outputs.size(); ++place) {
    if (outputs[place] != nullptr) {
      binding_.BindOutput(output_names_[place], *outputs[place]);
    } else {
      const bool to_host = graph_.info_.outputs[place].name == "logits";
      binding_.BindOutput(output_names_[place], to_host ? graph_.host_ : graph_.device_);
    }
  }
  graph_.session_.Run(graph_.run_options_, binding_);
  std::vector<Ort::Value> made = binding_.GetOutputValues();
  for (size_t place = 0; place < made.size(); ++place) {
    if (outputs[place] == nullptr) outputs[place] = std::make_shared<const Ort::Value>(std::move(made[place]));
  }
}

const Value* Runs::WrittenOver(size_t output, const std::vector<Value>& inputs) const {
  const int input = places_of_inputs_[output];
  if (input < 0) return nullptr;
  // A device reads a tensor of the host as a copy: overwriting the tensor would not reach it.
  const Value& old = inputs[static_cast<size_t>(input)];
  return old->GetTensorMemoryInfo().GetDeviceType() == graph_.device_.GetDeviceType() ? &old : nullptr;
}

}  // namespace seqlab
