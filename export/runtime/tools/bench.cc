#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "commands.h"

namespace seqlab::tools {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// The nearest-rank percentile of sorted numbers.
double Percentile(const std::vector<double>& sorted, double percent) {
  const auto rank = static_cast<size_t>(percent / 100 * static_cast<double>(sorted.size()));
  return sorted[std::min(rank, sorted.size() - 1)];
}

double Mean(const std::vector<double>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
}

struct Times {
  std::vector<double> first, later;               // in milliseconds
  std::map<int64_t, std::vector<double>> by_position;  // of later ones, by the power of two that is not above
};

int64_t PowerBelow(int64_t number) {
  int64_t power = 1;
  while (power <= number / 2) power *= 2;
  return power;
}

json ToJson(const Times& times, const BenchOptions& options) {
  std::vector<double> sorted = times.later;
  std::sort(sorted.begin(), sorted.end());
  json positions = json::array();
  for (const auto& [position, some] : times.by_position) positions.push_back({{"from", position}, {"ms", Mean(some)}});
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const double total = Mean(times.first) + Mean(times.later) * static_cast<double>(options.new_tokens - 1);
  return {{"prompt_tokens", options.prompt_tokens},
          {"new_tokens", options.new_tokens},
          {"runs", options.runs},
          {"first_token_ms", Mean(times.first)},
          {"tokens_per_second", 1000.0 * static_cast<double>(options.new_tokens) / total},
          {"token_ms", {{"p50", Percentile(sorted, 50)}, {"p90", Percentile(sorted, 90)}, {"p99", Percentile(sorted, 99)}}},
          {"token_ms_by_position", positions},
          {"peak_memory_mb", static_cast<double>(usage.ru_maxrss) / 1024}};
}

}  // namespace

Result<int> RunBench(const Common& common, const BenchOptions& options) {
  if (options.prompt_tokens < 1 || options.new_tokens < 2 || options.runs < 1) {
    return Status("bench needs at least 1 prompt token, 2 new tokens and 1 run");
  }
  Result<Model> model = Model::Open(common.bundle, common.open);
  if (!model.ok()) return model.status();
  Session session(*model);
  Ids prompt;
  const int64_t vocab_size = model->info().vocab_size.value_or(1);
  for (int64_t place = 0; place < options.prompt_tokens; ++place) prompt.push_back(place % vocab_size);
  GenerateOptions greedy;
  greedy.max_new_tokens = options.new_tokens;
  greedy.sampling.temperature = 0;
  Times times;
  for (int64_t run = 0; run <= options.runs; ++run) {
    if (run == 1) times = {};
    Clock::time_point last = Clock::now();
    if (model->info().reads_source) {
      // As long as the prompt; any id takes as long as another.
      const Status read = session.ReadSource({Ids(prompt.size(), 2)});
      if (!read.ok()) return read;
    }
    int64_t position = options.prompt_tokens;
    const auto written = session.Generate({prompt}, greedy, [&](int64_t, int64_t) {
      const double taken = MillisecondsSince(last);
      last = Clock::now();
      if (position++ == options.prompt_tokens) {
        times.first.push_back(taken);
      } else {
        times.later.push_back(taken);
        times.by_position[PowerBelow(position)].push_back(taken);
      }
    });
    if (!written.ok()) return written.status();
  }
  const json found = ToJson(times, options);
  if (common.json) {
    std::cout << Dumped(found, 2) << "\n";
    return 0;
  }
  std::printf("time to first token  %.2f ms, of %lld prompt tokens\n", found["first_token_ms"].get<double>(),
              static_cast<long long>(options.prompt_tokens));
  std::printf("tokens a second      %.1f\n", found["tokens_per_second"].get<double>());
  for (const char* rank : {"p50", "p90", "p99"}) {
    std::printf("a token, %s         %.3f ms\n", rank, found["token_ms"][rank].get<double>());
  }
  for (const json& part : found["token_ms_by_position"]) {
    std::printf("from position %-6lld %.3f ms\n", part["from"].get<long long>(), part["ms"].get<double>());
  }
  std::printf("peak memory          %.0f MB\n", found["peak_memory_mb"].get<double>());
  std::fflush(stdout);
  return 0;
}

}  // namespace seqlab::tools
