// The device that graphs run on, which onnxruntime calls an execution provider.
#ifndef SEQLAB_PROVIDER_H_
#define SEQLAB_PROVIDER_H_

#include <string>

#include "onnxruntime.h"
#include "seqlab/runtime.h"

namespace seqlab {

// Makes the provider ready. Throws Refusal where this onnxruntime does not have it.
void OpenProvider(const std::string& provider, const Onnxruntime& onnxruntime);

// Loads those of CUDA's libraries that NVIDIA's wheels have put beside the wheel of this library of onnxruntime, as
// Python's `onnxruntime.preload_dlls` does: the CUDA provider names them and not their folders. What is not there, or
// does not load, is left to the system's loader.
void LoadCudaLibraries(const std::string& onnxruntime_file);

// Throws Refusal where the provider cannot be loaded.
Ort::SessionOptions SettingsFor(const OpenOptions& options);

// Where its tensors lie.
Ort::MemoryInfo MemoryOf(const std::string& provider);

}  // namespace seqlab

#endif  // SEQLAB_PROVIDER_H_
