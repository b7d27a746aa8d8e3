// threads BUNDLE: one model, shared by many sessions on many threads, writes what one session writes alone.

#include <iostream>
#include <thread>
#include <vector>

#include "seqlab/runtime.h"

namespace {

constexpr int kThreads = 4;
constexpr int kTextsPerThread = 8;

// Greedy and sampled in turns; a bundle that reads sources reads one.
std::vector<seqlab::Ids> Written(const seqlab::Model& model, int number) {
  seqlab::Session session(model);
  seqlab::GenerateOptions options;
  options.max_new_tokens = 12;
  options.sampling.temperature = number % 2;
  options.sampling.seed = static_cast<uint64_t>(number);
  if (model.info().reads_source && !session.ReadSource({{4, 5, 6, 2}}).ok()) return {};
  const auto found = session.Generate({{1, 4 + number % 3}}, options);
  return found.ok() ? *found : std::vector<seqlab::Ids>{};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  seqlab::OpenOptions options;
  options.threads = 1;
  const auto model = seqlab::Model::Open(argv[1], options);
  if (!model.ok()) {
    std::cerr << model.status().message() << "\n";
    return 2;
  }
  std::vector<std::vector<seqlab::Ids>> expected;
  for (int number = 0; number < kThreads * kTextsPerThread; ++number) expected.push_back(Written(*model, number));
  std::vector<std::vector<seqlab::Ids>> found(expected.size());
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int text = 0; text < kTextsPerThread; ++text) {
        const int number = thread * kTextsPerThread + text;
        found[static_cast<size_t>(number)] = Written(*model, number);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const bool same = found == expected && !expected[0].empty();
  std::cout << (same ? "the same" : "different") << "\n";
  return same ? 0 : 1;
}
