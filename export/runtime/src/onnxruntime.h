// onnxruntime's library, which is opened at run time and never linked.
#ifndef SEQLAB_ONNXRUNTIME_H_
#define SEQLAB_ONNXRUNTIME_H_

#include <string>
#include <utility>

#define ORT_API_MANUAL_INIT
#include <onnxruntime_cxx_api.h>
#undef ORT_API_MANUAL_INIT

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

}  // namespace seqlab

#endif  // SEQLAB_ONNXRUNTIME_H_
