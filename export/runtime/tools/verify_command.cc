#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "commands.h"
#include "error.h"
#include "json_text.h"
#include "manifest.h"
#include "seqlab/proof.h"
#include "shown.h"

namespace seqlab::tools {
namespace {

using nlohmann::json;

// Returns a number, or null if it is not finite, which JSON cannot write.
json Finite(double number) { return std::isfinite(number) ? json(number) : json(); }

// Returns the report as `seqlab verify --json` prints it.
json ToJson(const Report& report) {
  json checks = json::array();
  for (const Check& check : report.checks) {
    json one = {{"kind", check.kind}, {"subject", check.subject}, {"ok", check.ok}, {"note", check.note}};
    one["error"] = check.errors ? Finite(check.errors->rms) : json();
    one["torch_error"] = check.errors ? Finite(check.errors->torch) : json();
    one["limit"] = check.errors ? Finite(check.errors->limit) : json();
    one["largest"] = check.errors ? Finite(check.errors->largest) : json();
    checks.push_back(std::move(one));
  }
  const json options = report.provider == "cuda" ? json{{"use_tf32", "0"}} : json::object();
  json divergence;
  if (report.divergence) {
    const Divergence& found = *report.divergence;
    divergence = {{"kl", Finite(found.kl)}, {"kl_p99", Finite(found.kl_p99)}, {"top1", found.top1}};
  }
  return {{"ok", report.ok()},
          {"provider", report.provider},
          {"options", options},
          {"onnxruntime", report.onnxruntime},
          {"checks", checks},
          {"divergence", divergence},
          {"precision", report.precision}};
}

// Prints one line for each kind of check, with the check that is nearest to its limit.
void PrintSummary(const Report& report) {
  std::cout << "Parity of " << report.precision << " with float64: onnxruntime " << report.onnxruntime << ", "
            << report.provider << "\n";
  for (auto first = report.checks.begin(); first != report.checks.end();) {
    const auto last =
        std::find_if(first, report.checks.end(), [&](const Check& some) { return some.kind != first->kind; });
    int failed = 0;
    double nearest = 0.0, largest = 0.0;
    for (auto check = first; check != last; ++check) {
      failed += !check->ok;
      if (!check->errors || check->errors->limit == 0) continue;
      nearest = std::max(nearest, check->errors->rms / check->errors->limit);
      largest = std::max(largest, check->errors->largest);
    }
    std::cout << std::left << std::setw(10) << first->kind << std::right;
    std::printf(" %5d compared, ", static_cast<int>(last - first));
    if (largest > 0) std::printf("%3.0f%% of the limit, largest error %.1e, ", 100 * nearest, largest);
    std::printf(failed > 0 ? "%d failed\n" : "ok\n", failed);
    first = last;
  }
  if (report.divergence) {
    std::printf("distribution: KL %.1e nats, the likeliest the same at %.1f%% of places\n",
                std::max(report.divergence->kl, 0.0), 100 * report.divergence->top1);
  }
  for (const Check& check : report.checks) {
    if (!check.note.empty()) std::cout << check.kind << ": " << check.subject << ": " << check.note << "\n";
  }
  std::cout << std::flush;
}

// Returns the size of this process's data as RLIMIT_DATA counts it, in bytes.
double BytesOfData() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kilobytes = 0.0;
    if (word == "VmData:" && status >> kilobytes) return 1024 * kilobytes;
  }
  Refuse(StatusCode::kInternal, "/proc/self/status has no VmData");
}

// Limits the memory of this process, since a graph that nobody has proven may ask for any amount. It may allocate 1
// GiB, 64 times the bundle's files and 32 times the state of a text more than it has: nine rows are read at once, and
// their numbers are compared in float64. seqlab_export.runner.memory_wall sets the same limit.
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

// Ends the process if the object lives two seconds longer than the proof may take: onnxruntime ends a run between two
// nodes, never within one, and cannot end the loading of a graph.
class LastResort {
 public:
  explicit LastResort(double seconds) {
    std::thread([proven = proven_, seconds] {
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(seconds, 1e9) + 2));
      if (*proven) return;
      std::cerr << "seqlab-run: the proof is given up: it did not end within " << seconds << " seconds" << std::endl;
      std::_Exit(2);
    }).detach();
  }
  LastResort(const LastResort&) = delete;
  LastResort& operator=(const LastResort&) = delete;
  ~LastResort() { *proven_ = true; }

 private:
  const std::shared_ptr<std::atomic<bool>> proven_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace

Result<int> RunVerify(const Common& common, double seconds) {
  if (common.open.provider == "cpu") {
    if (const Status held = HoldMemory(common.bundle); !held.ok()) return held;
  }
  const Result<Report> report = [&] {
    const LastResort last_resort(seconds);
    return Verify(common.bundle, common.open, seconds);
  }();
  if (!report.ok()) return report.status();
  if (common.json) {
    ForPrograms() << Dumped(ToJson(*report), 2) << "\n";
  } else {
    PrintSummary(*report);
  }
  return report->ok() ? 0 : 1;
}

}  // namespace seqlab::tools
