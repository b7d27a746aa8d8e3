#include "memory_wall.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "error.h"
#include "manifest.h"

namespace seqlab::tools {
namespace {

// Of this process, as the limit counts them.
double BytesOfData() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kilobytes = 0.0;
    if (word == "VmData:" && status >> kilobytes) return 1024 * kilobytes;
  }
  Refuse(StatusCode::kInternal, "/proc/self/status has no VmData");
}

}  // namespace

Status HoldMemory(const std::string& bundle) {
  return Guarded([&] {
    const Manifest manifest = LoadManifest(bundle);
    double room = 1073741824.0 + 32 * manifest.StateBytes();
    std::error_code error;
    for (const auto& file : manifest.files) {
      const auto size = std::filesystem::file_size(std::filesystem::path(bundle) / file.first, error);
      if (!error) room += 64 * static_cast<double>(size);
    }
    rlimit limit{};
    getrlimit(RLIMIT_DATA, &limit);
    limit.rlim_cur = std::min(limit.rlim_cur, static_cast<rlim_t>(BytesOfData() + room));
    setrlimit(RLIMIT_DATA, &limit);
  });
}

}  // namespace seqlab::tools
