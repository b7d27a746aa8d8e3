#include "shared_weights.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "graph_file.h"
#include "manifest.h"

namespace seqlab {
namespace {

// Returns true for a matrix of float32 in the file of weights that is as long as its dimensions say.
bool IsMatrix(const StoredTensor& tensor) {
  constexpr int64_t kSize = sizeof(float);
  if (tensor.file != kWeightsName || tensor.type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT) return false;
  if (tensor.dims.size() != 2 || tensor.offset % kSize != 0 || tensor.length % kSize != 0) return false;
  const int64_t count = tensor.length / kSize, rows = tensor.dims[0], columns = tensor.dims[1];
  return rows > 0 && columns > 0 && count % columns == 0 && count / columns == rows;
}

// Maps a file for reading. Returns null and 0 if it cannot, or the file is empty.
std::pair<std::shared_ptr<void>, size_t> Mapped(const std::filesystem::path& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  const off_t end = lseek(file, 0, SEEK_END);
  const size_t size = end > 0 ? static_cast<size_t>(end) : 0;
  void* const start = size > 0 ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
  close(file);
  if (start == MAP_FAILED) return {};
  return {std::shared_ptr<void>(start, [size](void* mapped) { munmap(mapped, size); }), size};
}

// Gives the pages of a mapped file back, while this object lives, to the kernel: they count as memory of this process
// once they were read, and each is read once.
class Unloading {
 public:
  Unloading(void* file, size_t size)
      : thread_([this, file, size] {
          std::unique_lock<std::mutex> lock(mutex_);
          while (!end_.wait_for(lock, std::chrono::milliseconds(1), [this] { return ended_; })) {
            madvise(file, size, MADV_DONTNEED);
          }
          madvise(file, size, MADV_DONTNEED);
        }) {}

  ~Unloading() {
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
  std::thread thread_;  // the last member: it reads the others
};

}  // namespace

SharedWeights::SharedWeights(const std::filesystem::path& folder, const std::vector<std::string>& graphs)
    : folder_(folder) {
  using Place = std::tuple<int64_t, std::vector<int64_t>>;
  std::map<std::string, std::vector<StoredTensor>> matrices;
  std::map<Place, std::set<std::string>> readers;
  for (const std::string& graph : graphs) {
    for (StoredTensor& tensor : StoredTensors(folder / graph)) {
      if (!IsMatrix(tensor)) continue;
      readers[{tensor.offset, tensor.dims}].insert(graph);
      matrices[graph].push_back(std::move(tensor));
    }
  }
  std::tie(stored_, size_) = Mapped(folder / kWeightsName);
  if (stored_ == nullptr) return;  // onnxruntime says why, if a graph has weights there
  const Ort::MemoryInfo memory = MemoryOf("cpu");
  for (const auto& [graph, tensors] : matrices) {
    for (const StoredTensor& tensor : tensors) {
      if (readers[{tensor.offset, tensor.dims}].size() < 2) continue;
      if (static_cast<size_t>(tensor.offset + tensor.length) > size_) continue;
      auto* const first = reinterpret_cast<float*>(static_cast<char*>(stored_.get()) + tensor.offset);
      const size_t count = static_cast<size_t>(tensor.length) / sizeof(float);
      tensors_[graph].emplace(tensor.name,
                              Ort::Value::CreateTensor(memory, first, count, tensor.dims.data(), tensor.dims.size()));
    }
  }
  OrtPrepackedWeightsContainer* made = nullptr;
  Ort::ThrowOnError(Ort::GetApi().CreatePrepackedWeightsContainer(&made));
  arranged_.reset(made, Ort::GetApi().ReleasePrepackedWeightsContainer);
}

Ort::Session SharedWeights::Open(const Ort::Env& env, const std::string& graph, Ort::SessionOptions settings) const {
  const std::filesystem::path path = folder_ / graph;
  const auto found = tensors_.find(graph);
  if (found == tensors_.end()) return Ort::Session(env, path.c_str(), settings);
  for (const auto& [name, tensor] : found->second) settings.AddInitializer(name.c_str(), tensor);
  const Unloading unloading(stored_.get(), size_);
  return Ort::Session(env, path.c_str(), settings, arranged_.get());
}

}  // namespace seqlab
