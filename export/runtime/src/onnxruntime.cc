#include "onnxruntime.h"

#include <dlfcn.h>
#include <glob.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <sstream>
#include <vector>

#include "error.h"
#include "manifest.h"

namespace seqlab {
namespace {

namespace fs = std::filesystem;

// The first version of the API that has all that this runtime calls.
constexpr int kOldestApi = 16;
// Ordered so that each library comes after those that it needs.
constexpr const char* kCudaLibraries[] = {"cudart", "nvJitLink", "nvrtc", "cublasLt",
                                          "cublas", "curand",    "cufft", "cudnn"};

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Returns the prefix of the Python that `python3` starts: PREFIX/bin/python3 on PATH.
fs::path PythonOnPath() {
  std::istringstream folders(Environment("PATH"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::error_code error;
    if (fs::is_regular_file(fs::path(folder) / "python3", error)) return fs::path(folder).parent_path();
  }
  return {};
}

// Adds the libraries of Python wheels in PREFIX/lib/python3.*/{site,dist}-packages.
void AddWheels(const fs::path& prefix, std::vector<std::string>& found) {
  std::error_code error;
  for (const auto& python : fs::directory_iterator(prefix / "lib", error)) {
    if (python.path().filename().string().rfind("python3", 0) != 0) continue;
    for (const char* packages : {"site-packages", "dist-packages"}) {
      std::error_code absent;
      for (const auto& file : fs::directory_iterator(python.path() / packages / "onnxruntime/capi", absent)) {
        if (file.path().filename().string().rfind("libonnxruntime.so", 0) == 0) found.push_back(file.path().string());
      }
    }
  }
}

std::vector<std::string> Candidates(const std::string& file) {
  if (!file.empty()) return {file};
  if (const std::string named = Environment("SEQLAB_ORT_LIB"); !named.empty()) return {named};
  std::vector<std::string> found = {"libonnxruntime.so.1", "libonnxruntime.so"};
  const std::string environment = Environment("VIRTUAL_ENV"), home = Environment("HOME");
  if (!environment.empty()) AddWheels(environment, found);
  if (const fs::path prefix = PythonOnPath(); !prefix.empty()) AddWheels(prefix, found);
  if (!home.empty()) AddWheels(home + "/.local", found);
  for (const char* prefix : {"/usr/local", "/usr"}) AddWheels(prefix, found);
  return found;
}

std::string FileOf(const void* symbol) {
  Dl_info info{};
  if (dladdr(symbol, &info) == 0) return "";
  std::error_code error;
  const fs::path path = fs::canonical(info.dli_fname, error);
  return error ? info.dli_fname : path.string();
}

std::unique_ptr<Onnxruntime> Open(const std::string& file) {
  void* handle = nullptr;
  std::string reason;
  for (const std::string& candidate : Candidates(file)) {
    handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) break;
    if (const char* said = dlerror(); reason.empty()) reason = said == nullptr ? "" : said;
  }
  if (handle == nullptr) {
    Refuse(StatusCode::kNotFound, "onnxruntime's library is not found (", reason,
           "); give its file with --ort-lib or SEQLAB_ORT_LIB, or put a python3 that has onnxruntime on PATH");
  }
  using GetBase = const OrtApiBase*(ORT_API_CALL*)();
  const auto get_base = reinterpret_cast<GetBase>(dlsym(handle, "OrtGetApiBase"));
  if (get_base == nullptr) {
    Refuse(StatusCode::kUnsupported, file, " is not onnxruntime's library: it has no OrtGetApiBase");
  }
  const std::string version = get_base()->GetVersionString(), path = FileOf(reinterpret_cast<const void*>(get_base));
  // A library has its own version of the API and older ones. Asked for a newer one, it complains on stderr.
  int number = std::min(ORT_API_VERSION, ParseVersion(version).second);
  const OrtApi* api = nullptr;
  for (; number >= kOldestApi; --number) {
    api = get_base()->GetApi(static_cast<uint32_t>(number));
    if (api != nullptr) break;
  }
  if (api == nullptr) {
    Refuse(StatusCode::kUnsupported, "onnxruntime ", version, " (", path, ") is too old, accepted is 1.", kOldestApi,
           " or later");
  }
  // There can be no Ort::Env before this, not even an empty one: its destructor calls the API.
  Ort::InitApi(api);
  return std::make_unique<Onnxruntime>(
      Onnxruntime{path, version, number, handle, Ort::Env(ORT_LOGGING_LEVEL_FATAL, "seqlab")});
}

[[noreturn]] void RefuseCuda(const std::string& reason) {
  Refuse(StatusCode::kUnsupported, "provider \"cuda\" cannot be loaded (", reason,
         "); install it, or use another provider");
}

// Extracts the message of the system's loader from onnxruntime's message.
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

// Loads the CUDA libraries that NVIDIA's wheels have installed beside this onnxruntime's wheel, as Python's
// `onnxruntime.preload_dlls` does: the CUDA provider names them without their folders. The system's loader finds those
// that are missing here or do not load.
void LoadCudaLibraries(const std::string& onnxruntime_file) {
  // site-packages/onnxruntime/capi/libonnxruntime.so: site-packages/nvidia/cu13/lib, or nvidia/cublas/lib and so on.
  const fs::path packages = fs::path(onnxruntime_file).parent_path().parent_path().parent_path();
  for (const char* library : kCudaLibraries) {
    const fs::path pattern = packages / "nvidia/*/lib" / Join("lib", library, ".so*");
    glob_t found{};
    if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
      // Never closed: a library that is loaded is found by its name.
      for (size_t place = 0; place < found.gl_pathc; ++place) dlopen(found.gl_pathv[place], RTLD_NOW | RTLD_GLOBAL);
    }
    globfree(&found);
  }
}

}  // namespace

const Onnxruntime& OpenOnnxruntime(const std::string& file) {
  static std::mutex mutex;
  // Never closed: sessions of other threads may outlive static objects when the process ends.
  static const Onnxruntime* opened = nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  if (opened == nullptr) opened = Open(file).release();
  std::error_code error;
  if (!file.empty() && !fs::equivalent(file, opened->file, error)) {
    Refuse("this process has opened onnxruntime from ", opened->file, " and cannot open ", file, " too");
  }
  return *opened;
}

void OpenProvider(const std::string& provider, const Onnxruntime& onnxruntime) {
  if (provider == "cpu") return;
  if (provider != "cuda") Refuse("provider must be one of cpu, cuda, got \"", provider, "\"");
  const std::vector<std::string> available = Ort::GetAvailableProviders();
  if (std::find(available.begin(), available.end(), "CUDAExecutionProvider") == available.end()) {
    Refuse(StatusCode::kUnsupported, "this onnxruntime has no provider \"", provider, "\"; use another one");
  }
  LoadCudaLibraries(onnxruntime.file);
}

Ort::SessionOptions SettingsFor(const OpenOptions& options) {
  Ort::SessionOptions settings;
  settings.SetLogSeverityLevel(ORT_LOGGING_LEVEL_FATAL);         // errors are thrown
  settings.AddConfigEntry("session.load_model_format", "ONNX");  // regardless of the file's name and first bytes
  // A thread spins between two nodes, which is faster than sleeping. Longer spinning would starve other programs.
  settings.AddConfigEntry("session.intra_op.spin_duration_us", "50");
  if (options.threads > 0) settings.SetIntraOpNumThreads(options.threads);
  if (options.provider == "cuda") {
    try {
      AppendCuda(settings);
    } catch (const Ort::Exception& error) {
      RefuseCuda(ReasonOf(error.what()));
    }
  }
  return settings;
}

void RefuseForDevice(const std::string& message) {
  const std::string library = "dlopen failed for libcudnn.so: ", failure = "CUDA failure ";
  if (const size_t place = message.find(library); place != message.npos) {
    RefuseCuda(ReasonOf(message.substr(place + library.size())));
  }
  if (const size_t place = message.find(failure); place != message.npos) {
    const size_t begin = message.find(": ", place) + 2;
    RefuseCuda(ReasonOf(message.substr(begin, message.find(';', begin) - begin)));
  }
}

Ort::MemoryInfo MemoryOf(const std::string& provider) {
  if (provider == "cuda") return Ort::MemoryInfo("Cuda", OrtDeviceAllocator, 0, OrtMemTypeDefault);
  return Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeDefault);
}

}  // namespace seqlab
