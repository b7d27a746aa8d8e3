// The commands of seqlab-run. Each prints results on stdout and returns an exit code, or a failure if its input is
// wrong.
#ifndef SEQLAB_TOOLS_COMMANDS_H_
#define SEQLAB_TOOLS_COMMANDS_H_

#include <optional>
#include <string>
#include <vector>

#include "seqlab/runtime.h"
#include "server.h"

namespace seqlab::tools {

// Options of every command.
struct Common {
  std::string bundle;
  OpenOptions open;
  bool json = false;
};

struct TextOptions {
  std::optional<std::string> prompt;
  std::vector<std::string> texts;  // empty = the lines of stdin
  std::optional<int64_t> n_best;
  GenerateOptions generate;
  TranslateOptions translate;
};

struct BenchOptions {
  int64_t batch = 1;
  int64_t beams = 1;
  int64_t prompt_tokens = 16;
  int64_t new_tokens = 128;
  int64_t runs = 5;
};

Result<int> RunInfo(const Common& common);
Result<int> RunGenerate(const Common& common, const TextOptions& options);
Result<int> RunTranslate(const Common& common, const TextOptions& options);
Result<int> RunClassify(const Common& common, const TextOptions& options);

Result<int> RunVerify(const Common& common, double seconds);
struct ServeCommand {
  std::vector<std::string> bundles;
  OpenOptions open;
  serve::ServeOptions options;
};
Result<int> RunServe(ServeCommand command);
Result<int> RunBench(const Common& common, const BenchOptions& options);

}  // namespace seqlab::tools

#endif  // SEQLAB_TOOLS_COMMANDS_H_
