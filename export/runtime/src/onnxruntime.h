// onnxruntime: its library, which is opened at run time and never linked, and the devices that graphs run on, which it
// calls execution providers.
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

// Opens the library, or gives the one that this process has opened; onnxruntime itself is one a process.
//
// `file` as of OpenOptions. Throws Refusal where there is none, it cannot be opened, or another one is open.
const Onnxruntime& OpenOnnxruntime(const std::string& file);

// Makes the provider ready. Throws Refusal where this onnxruntime does not have it.
void OpenProvider(const std::string& provider, const Onnxruntime& onnxruntime);

// Throws Refusal where the provider cannot be loaded.
Ort::SessionOptions SettingsFor(const OpenOptions& options);

// Where its tensors lie.
Ort::MemoryInfo MemoryOf(const std::string& provider);

}  // namespace seqlab

#endif  // SEQLAB_ONNXRUNTIME_H_
