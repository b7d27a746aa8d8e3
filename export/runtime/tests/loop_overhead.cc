// loop_overhead BUNDLE THREADS TOKENS ROUNDS: measures what the decoding loop adds to its runs of step.onnx.
//
// Each line of stdout is a token that was generated greedily: the microseconds since the token before it, and the
// microseconds of a bare run of the same session on the same token, with a state of its own. The two alternate token by
// token.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "bundle.h"
#include "decoder.h"
#include "generate.h"

namespace {

using Clock = std::chrono::steady_clock;

double MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// Runs of step.onnx by the bare C++ API, on the host.
class BareSteps {
 public:
  BareSteps(const seqlab::Bundle& bundle, const seqlab::Ids& prompt) : graph_(*bundle.step), decoder_(bundle) {
    decoder_.Prefill({prompt});
    const Ort::MemoryInfo host = Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeDefault);
    for (const seqlab::TensorInfo& input : graph_.info().inputs) {
      input_names_.push_back(input.name.c_str());
      if (input.name == "tokens") {
        inputs_.push_back(Ort::Value::CreateTensor<int64_t>(host, &token_, 1, kDims, 2));
      } else if (input.name == "pad_mask") {
        inputs_.push_back(Ort::Value::CreateTensor<bool>(host, &mask_, 1, kDims, 2));
      } else {
        inputs_.push_back(View(host, decoder_.State(input.name.substr(6))));
      }
    }
    for (const seqlab::TensorInfo& output : graph_.info().outputs) {
      output_names_.push_back(output.name.c_str());
      const auto same = [&](const char* name) { return output.name == "new_" + std::string(name); };
      renewed_.push_back(std::find_if(input_names_.begin(), input_names_.end(), same) - input_names_.begin());
    }
  }

  // Runs a step on a token and returns the microseconds that onnxruntime takes.
  double Run(int64_t token) {
    token_ = token;
    const Clock::time_point start = Clock::now();
    auto outputs = graph_.session().Run(options_, input_names_.data(), inputs_.data(), inputs_.size(),
                                        output_names_.data(), output_names_.size());
    const double taken = MicrosecondsSince(start);
    for (size_t place = 0; place < outputs.size(); ++place) {
      if (renewed_[place] < inputs_.size()) inputs_[renewed_[place]] = std::move(outputs[place]);
    }
    return taken;
  }

 private:
  static constexpr int64_t kDims[] = {1, 1};

  // Returns a tensor on the memory of a value that others share.
  static Ort::Value View(const Ort::MemoryInfo& host, const seqlab::Value& value) {
    const auto type = value->GetTensorTypeAndShapeInfo();
    const std::vector<int64_t> dims = type.GetShape();
    auto* data = const_cast<void*>(value->GetTensorRawData());
    const size_t most = type.GetElementCount() * sizeof(int64_t);
    return Ort::Value::CreateTensor(host, data, most, dims.data(), dims.size(), type.GetElementType());
  }

  const seqlab::Graph& graph_;
  seqlab::Decoder decoder_;  // owns the state after the prompt
  const Ort::RunOptions options_;
  int64_t token_ = 0;
  bool mask_ = true;
  std::vector<const char*> input_names_, output_names_;
  std::vector<Ort::Value> inputs_;
  std::vector<size_t> renewed_;  // by output: the input that it becomes in the next run
};

void Measure(const seqlab::Bundle& bundle, int tokens, int rounds) {
  const seqlab::Ids prompt = {1};
  seqlab::Decoder decoder(bundle);
  seqlab::GenerateOptions greedy;
  greedy.sampling.temperature = 0;
  greedy.max_new_tokens = tokens;
  for (int round = 0; round < rounds; ++round) {
    BareSteps bare(bundle, prompt);
    Clock::time_point before;
    int64_t written = 0;
    seqlab::Generate(decoder, {prompt}, greedy, [&](int64_t, int64_t token) {
      const double taken = MicrosecondsSince(before);
      static double inside = 0.0;
      if (written++ > 0) std::printf("%.3f %.3f\n", taken, inside);
      inside = bare.Run(token);
      before = Clock::now();
      return true;
    });
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  seqlab::OpenOptions open;
  open.threads = std::atoi(argv[2]);
  try {
    Measure(seqlab::Bundle(argv[1], open), std::atoi(argv[3]), std::atoi(argv[4]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
