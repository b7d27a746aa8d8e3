// onnxruntime: its library, which is opened at run time and never linked, and its execution providers, the devices that
// graphs run on.
#ifndef SEQLAB_ONNXRUNTIME_H_
#define SEQLAB_ONNXRUNTIME_H_

#include <string>
#include <utility>

#define ORT_API_MANUAL_INIT
#include <onnxruntime_cxx_api.h>
#undef ORT_API_MANUAL_INIT

#include "seqlab/runtime.h"

namespace seqlab {

struct Onnxruntime {
  std::string file, version;
  int api = 0;
  void* handle = nullptr;
  Ort::Env env;
};

// Opens onnxruntime's library, or returns the one that is open: a process can have only one.
//
// `file` is that of OpenOptions. Throws Refusal if no library is found, it cannot be opened, or another one is open.
const Onnxruntime& OpenOnnxruntime(const std::string& file);

// Loads the libraries that a provider needs. Throws Refusal if this onnxruntime does not have the provider.
void OpenProvider(const std::string& provider, const Onnxruntime& onnxruntime);

// Returns the options of a session. Throws Refusal if the provider cannot be loaded.
Ort::SessionOptions SettingsFor(const OpenOptions& options);

// Throws Refusal if onnxruntime's message about a graph says that the device is at fault: cuDNN, or CUDA itself.
void RefuseForDevice(const std::string& message);

// Returns the memory that holds a provider's tensors.
Ort::MemoryInfo MemoryOf(const std::string& provider);

}  // namespace seqlab

#endif  // SEQLAB_ONNXRUNTIME_H_
