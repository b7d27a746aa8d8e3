#include "provider.h"

#include <dlfcn.h>
#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "error.h"

namespace seqlab {
namespace {

namespace fs = std::filesystem;

// In an order in which each finds those that it needs.
constexpr const char* kCudaLibraries[] = {"cudart", "nvJitLink", "nvrtc", "cublasLt", "cublas", "curand", "cufft", "cudnn"};

// What the system's loader says is missing, without onnxruntime's own words around it.
std::string ReasonOf(std::string text) {
  const std::string before = "with error: ";
  if (const size_t place = text.find(before); place != std::string::npos) text.erase(0, place + before.size());
  std::replace(text.begin(), text.end(), '\n', ' ');
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

void AppendCuda(Ort::SessionOptions& settings) {
  const OrtApi& api = Ort::GetApi();
  OrtCUDAProviderOptionsV2* cuda = nullptr;
  Ort::ThrowOnError(api.CreateCUDAProviderOptions(&cuda));
  const std::unique_ptr<OrtCUDAProviderOptionsV2, decltype(api.ReleaseCUDAProviderOptions)> owner(
      cuda, api.ReleaseCUDAProviderOptions);
  // TF32 is onnxruntime's default and not PyTorch's.
  const char *key = "use_tf32", *value = "0";
  Ort::ThrowOnError(api.UpdateCUDAProviderOptions(cuda, &key, &value, 1));
  settings.AppendExecutionProvider_CUDA_V2(*cuda);
}

}  // namespace

void OpenProvider(const std::string& provider, const Onnxruntime& onnxruntime) {
  if (provider == "cpu") return;
  if (provider != "cuda") Refuse("provider must be one of cpu, cuda, got \"", provider, "\"");
  const std::vector<std::string> available = Ort::GetAvailableProviders();
  if (std::find(available.begin(), available.end(), "CUDAExecutionProvider") == available.end()) {
    Refuse(StatusCode::kUnsupported, "this onnxruntime has no provider \"", provider, "\"; use another one");
  }
  LoadCudaLibraries(onnxruntime.file);
}

void LoadCudaLibraries(const std::string& onnxruntime_file) {
  // site-packages/onnxruntime/capi/libonnxruntime.so: site-packages/nvidia/cu13/lib, or nvidia/cublas/lib and so on.
  const fs::path packages = fs::path(onnxruntime_file).parent_path().parent_path().parent_path();
  for (const char* library : kCudaLibraries) {
    const fs::path pattern = packages / "nvidia/*/lib" / Join("lib", library, ".so*");
    glob_t found{};
    if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
      // For good: one that is loaded is found by its name.
      for (size_t place = 0; place < found.gl_pathc; ++place) dlopen(found.gl_pathv[place], RTLD_NOW | RTLD_GLOBAL);
    }
    globfree(&found);
  }
}

Ort::SessionOptions SettingsFor(const OpenOptions& options) {
  Ort::SessionOptions settings;
  settings.SetLogSeverityLevel(ORT_LOGGING_LEVEL_ERROR);
  // Between two nodes a thread spins rather than sleeps; for longer it would keep other programs from the processor.
  settings.AddConfigEntry("session.intra_op.spin_duration_us", "50");
  if (options.threads > 0) settings.SetIntraOpNumThreads(options.threads);
  if (options.provider == "cuda") {
    try {
      AppendCuda(settings);
    } catch (const Ort::Exception& error) {
      Refuse(StatusCode::kUnsupported, "provider \"cuda\" cannot be loaded (", ReasonOf(error.what()),
             "); install it, or use another provider");
    }
  }
  return settings;
}

Ort::MemoryInfo MemoryOf(const std::string& provider) {
  if (provider == "cuda") return Ort::MemoryInfo("Cuda", OrtDeviceAllocator, 0, OrtMemTypeDefault);
  return Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeDefault);
}

}  // namespace seqlab
