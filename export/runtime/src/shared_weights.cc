#include "shared_weights.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <tuple>

namespace seqlab {
namespace {

constexpr char kFile[] = "weights.bin";

class GivingBack {
 public:
  GivingBack(void* file, size_t size) : thread_([this, file, size] {
    std::unique_lock<std::mutex> lock(mutex_);
    do {
      madvise(file, size, MADV_DONTNEED);
    } while (!end_.wait_for(lock, std::chrono::milliseconds(1), [this] { return ended_; }));
    madvise(file, size, MADV_DONTNEED);
  }) {}
  ~GivingBack() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ended_ = true;
    }
    end_.notify_one();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable end_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace

SharedWeights::SharedWeights(const std::filesystem::path& folder, const std::vector<std::string>& graphs)
    : folder_(folder) {
  std::map<std::tuple<int64_t, int64_t, int32_t, std::vector<int64_t>>, int> uses;
  std::map<std::string, std::vector<StoredTensor>> stored;
  for (const std::string& graph : graphs) {
    for (StoredTensor& t : StoredTensors(folder / graph)) {
      if (t.file != kFile || t.dims.size() < 2) continue;
      ++uses[{t.offset, t.length, t.type, t.dims}];
      stored[graph].push_back(std::move(t));
    }
  }
  const int file = open((folder / kFile).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  size_ = static_cast<size_t>(lseek(file, 0, SEEK_END));
  file_ = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  Ort::ThrowOnError(Ort::GetApi().CreatePrepackedWeightsContainer(&packed_));
  const Ort::MemoryInfo memory = MemoryOf("cpu");
  for (auto& [graph, tensors] : stored) {
    for (StoredTensor& t : tensors) {
      if (uses[{t.offset, t.length, t.type, t.dims}] < 2) continue;
      tensors_[graph].emplace(
          t.name, Ort::Value::CreateTensor(memory, static_cast<char*>(file_) + t.offset, static_cast<size_t>(t.length), t.dims.data(), t.dims.size(), static_cast<ONNXTensorElementDataType>(t.type)));
    }
  }
}

SharedWeights::~SharedWeights() {
  Ort::GetApi().ReleasePrepackedWeightsContainer(packed_);
  if (file_) munmap(file_, size_);
}

Ort::Session SharedWeights::Open(const Ort::Env& env, const std::string& graph, Ort::SessionOptions settings) const {
  const std::string path = folder_ / graph;
  if (tensors_.count(graph) == 0) return Ort::Session(env, path.c_str(), settings);
  for (const auto& [name, tensor] : tensors_.at(graph)) settings.AddInitializer(name.c_str(), tensor);
  const GivingBack giving_back(file_, size_);
  return Ort::Session(env, path.c_str(), settings, packed_);
}

}  // namespace seqlab
