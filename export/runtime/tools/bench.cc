#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "commands.h"
#include "json_text.h"
#include "shown.h"

namespace seqlab::tools {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
using Texts = std::vector<Ids>;

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Returns the nearest-rank percentile of sorted numbers.
double Percentile(const std::vector<double>& sorted, double percent) {
  const auto rank = static_cast<size_t>(percent / 100 * static_cast<double>(sorted.size()));
  return sorted[std::min(rank, sorted.size() - 1)];
}

double Mean(const std::vector<double>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
}

// Times in milliseconds. Beam search has no times of tokens: it returns them all at once.
struct Times {
  std::vector<double> runs, first, later;
  std::map<int64_t, std::vector<double>> by_position;  // later tokens by the power of two at or below
};

int64_t PowerBelow(int64_t number) {
  int64_t power = 1;
  while (power <= number / 2) power *= 2;
  return power;
}

// Makes sources of ids below 4, which every tokenizer has.
Texts Sources(const BenchOptions& options) {
  Texts sources(static_cast<size_t>(options.batch));
  for (int64_t row = 0; row < options.batch; ++row) {
    for (int64_t place = 0; place < options.prompt_tokens; ++place) {
      sources[static_cast<size_t>(row)].push_back((place * place / 3 + row * (place / 2 + 1)) % 4);
    }
  }
  return sources;
}

Texts Prompts(const BenchOptions& options, const Info& info) {
  Texts prompts(static_cast<size_t>(options.batch));
  for (int64_t row = 0; row < options.batch; ++row) {
    // A target begins with bos, whose id is 1.
    if (info.reads_source) prompts[static_cast<size_t>(row)] = {1};
    for (int64_t place = 0; place < options.prompt_tokens && !info.reads_source; ++place) {
      prompts[static_cast<size_t>(row)].push_back((row * options.prompt_tokens + place) % info.vocab_size.value_or(1));
    }
  }
  return prompts;
}

// Decodes once and adds to `times`.
Result<Texts> Write(Session& session, const Texts& sources, const Texts& prompts, const BenchOptions& options,
                    Times& times) {
  const Clock::time_point start = Clock::now();
  if (!sources.empty()) {
    const Status read = session.ReadSource(sources);
    if (!read.ok()) return read;
  }
  if (options.beams > 1) {
    BeamOptions search;
    search.beams = options.beams;
    search.max_new_tokens = options.new_tokens;
    const auto found = session.BeamSearch(prompts, search);
    if (!found.ok()) return found.status();
    times.runs.push_back(MillisecondsSince(start));
    Texts best;
    for (const auto& hypotheses : *found) best.push_back(hypotheses.empty() ? Ids() : hypotheses[0].tokens);
    return best;
  }
  GenerateOptions greedy;
  greedy.max_new_tokens = options.new_tokens;
  greedy.sampling.temperature = 0;
  Clock::time_point last = start;
  int64_t position = static_cast<int64_t>(prompts[0].size());
  Result<Texts> written = session.Generate(prompts, greedy, [&](int64_t row, int64_t) {
    if (row > 0) return true;
    const double taken = MillisecondsSince(last);
    last = Clock::now();
    if (position++ == static_cast<int64_t>(prompts[0].size())) {
      times.first.push_back(taken);
    } else {
      times.later.push_back(taken);
      times.by_position[PowerBelow(position)].push_back(taken);
    }
    return true;
  });
  if (written.ok()) times.runs.push_back(MillisecondsSince(start));
  return written;
}

// Returns the peak memory of this process. getrusage's is never less than its parent's.
double PeakMegabytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stod(line.substr(6)) / 1024;
  }
  return 0.0;
}

json ToJson(const Times& times, const BenchOptions& options) {
  json found = {
      {"batch", options.batch},
      {"beams", options.beams},
      {"prompt_tokens", options.prompt_tokens},
      {"new_tokens", options.new_tokens},
      {"runs", options.runs},
      {"tokens_per_second", 1000.0 * static_cast<double>(options.batch * options.new_tokens) / Mean(times.runs)},
      {"peak_memory_mb", PeakMegabytes()}};
  if (times.later.empty()) return found;
  std::vector<double> sorted = times.later;
  std::sort(sorted.begin(), sorted.end());
  found["first_token_ms"] = Mean(times.first);
  found["token_ms"] = {
      {"p50", Percentile(sorted, 50)}, {"p90", Percentile(sorted, 90)}, {"p99", Percentile(sorted, 99)}};
  found["token_ms_by_position"] = json::array();
  for (const auto& [position, some] : times.by_position) {
    std::vector<double> part = some;
    std::sort(part.begin(), part.end());
    found["token_ms_by_position"].push_back({{"from", position}, {"ms", Mean(part)}, {"p50", Percentile(part, 50)}});
  }
  return found;
}

void Print(const json& found) {
  if (found.contains("first_token_ms")) {
    std::printf("time to first token  %.2f ms, of %lld prompt tokens\n", found["first_token_ms"].get<double>(),
                found["prompt_tokens"].get<long long>());
  }
  std::printf("tokens a second      %.1f\n", found["tokens_per_second"].get<double>());
  if (found.contains("token_ms")) {
    for (const char* rank : {"p50", "p90", "p99"}) {
      std::printf("a token, %s         %.3f ms\n", rank, found["token_ms"][rank].get<double>());
    }
    for (const json& part : found["token_ms_by_position"]) {
      std::printf("from position %-6lld %.3f ms\n", part["from"].get<long long>(), part["ms"].get<double>());
    }
  }
  std::printf("peak memory          %.0f MB\n", found["peak_memory_mb"].get<double>());
  std::fflush(stdout);
}

}  // namespace

Result<int> RunBench(const Common& common, const BenchOptions& options) {
  if (options.prompt_tokens < 1 || options.new_tokens < 2 || options.runs < 1 || options.batch < 1) {
    return Status(StatusCode::kInvalidArgument,
                  "bench needs at least 1 prompt token, 2 new tokens, 1 run and a batch of 1");
  }
  Result<Model> model = Model::Open(common.bundle, common.open);
  if (!model.ok()) return model.status();
  Session session(*model);
  const Texts sources = model->info().reads_source ? Sources(options) : Texts();
  const Texts prompts = Prompts(options, model->info());
  Times times;
  Texts written;
  for (int64_t run = 0; run <= options.runs; ++run) {
    if (run == 1) times = {};
    Result<Texts> texts = Write(session, sources, prompts, options, times);
    if (!texts.ok()) return texts.status();
    written = *std::move(texts);
  }
  json found = ToJson(times, options);
  if (!common.json) {
    Print(found);
    return 0;
  }
  found["later_token_ms"] = times.later;
  found["sources"] = sources;
  found["prompts"] = prompts;
  found["written"] = written;
  ForPrograms() << Dumped(found) << "\n";
  return 0;
}

}  // namespace seqlab::tools
