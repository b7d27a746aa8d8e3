// seqlab-run: what a bundle does, from the command line. Results on stdout, diagnostics on stderr.
//
// Exit codes: 0 done, 1 a proof that failed, 2 bad input, told in one sentence.

#include <CLI/CLI.hpp>
#include <charconv>
#include <exception>
#include <functional>
#include <iostream>

#include "commands.h"
#include "seqlab/proof.h"
#include "shown.h"

namespace {

using seqlab::Result;
using seqlab::tools::BenchOptions;
using seqlab::tools::Common;
using seqlab::tools::TextOptions;

// The words and the defaults are those of platform/seqlab/text_options.py.
void AddSampling(CLI::App& verb, TextOptions& options) {
  seqlab::Sampling& sampling = options.generate.sampling;
  verb.add_option("--prompt", options.prompt, "the text to continue; without it, or -, all of stdin");
  verb.add_option("--max-new-tokens", options.generate.max_new_tokens, "most tokens to write")->capture_default_str();
  verb.add_option("--temperature", sampling.temperature, "0 is greedy")->capture_default_str();
  verb.add_option("--top-k", sampling.top_k, "choose among the K likeliest");
  verb.add_option("--top-p", sampling.top_p, "choose among the likeliest that make up P")->capture_default_str();
  verb.add_option("--min-p", sampling.min_p, "choose among those P times the likeliest")->capture_default_str();
  // CLI11 would take -1 for 2^64 - 1.
  const auto set_seed = [&sampling](const std::string& text) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), sampling.seed);
    if (error != std::errc() || end != text.data() + text.size()) {
      throw CLI::ValidationError("--seed must be from 0 to 2^64 - 1, got " + text);
    }
  };
  verb.add_option_function<std::string>("--seed", set_seed, "of the random numbers")
      ->default_str(std::to_string(sampling.seed));
}

void AddRepetition(CLI::App& verb, seqlab::Repetition& repetition) {
  verb.add_option("--repetition-penalty", repetition.penalty, "above 1 avoids repetition")->capture_default_str();
  verb.add_option("--no-repeat-ngram", repetition.ngram, "write no sequence of N tokens twice");
}

void AddBeams(CLI::App& verb, TextOptions& options) {
  verb.add_option("--beams", options.translate.beams, "1 is greedy")->capture_default_str();
  verb.add_option("--length-penalty", options.translate.length_penalty, "0 prefers short")->capture_default_str();
  verb.add_option("--n-best", options.n_best, "print the N best of each line, after its number");
  verb.add_option("--prefix", options.translate.prefix, "each target begins with it");
}

// Whether a text is a number and nothing else. What is out of range is told elsewhere.
template <typename Number>
bool IsNumber(const std::string& text) {
  Number number{};
  const char* end = text.data() + text.size();
  // Of "inf" and "nan" there is no need.
  const bool decimal = !text.empty() && text.find_first_not_of("0123456789.eE+-") == std::string::npos;
  return decimal && std::from_chars(text.data(), end, number).ptr == end;
}

// Numbers are decimal, as `seqlab` takes them: CLI11 takes others too, and nothing at all for 0.
void CheckNumbers(CLI::App& app) {
  for (CLI::App* verb : app.get_subcommands([](CLI::App*) { return true; })) {
    for (CLI::Option* option : verb->get_options()) {
      const std::string type = option->get_type_name();
      if (type != "INT" && type != "UINT" && type != "FLOAT") continue;
      const bool is_whole = type != "FLOAT";
      option->check([is_whole](const std::string& text) {
        if (is_whole ? IsNumber<int64_t>(text) : IsNumber<double>(text)) return std::string();
        return std::string("must be a ") + (is_whole ? "whole number" : "number") + ", got '" + text + "'";
      });
    }
  }
}

int Main(int argc, char** argv) {
  CLI::App app("Runs a bundle of `seqlab export` with onnxruntime.");
  app.name("seqlab-run");
  app.require_subcommand(1);
  Common common;
  TextOptions text;
  BenchOptions bench;
  double seconds = seqlab::kProofSeconds;
  std::function<Result<int>()> run;
  const auto add = [&](const char* name, const char* what, std::function<Result<int>()> then) -> CLI::App& {
    CLI::App* verb = app.add_subcommand(name, what);
    verb->add_option("bundle", common.bundle, "the bundle's folder")->required();
    verb->add_option("--provider", common.open.provider, "onnxruntime's device, cpu or cuda; default: cpu");
    verb->add_option("--threads", common.open.threads, "default: onnxruntime's choice, one a core");
    verb->add_option("--ort-lib", common.open.onnxruntime, "the file of onnxruntime's library");
    verb->add_flag("--json", common.json, "print JSON");
    verb->callback([&run, then = std::move(then)] { run = then; });
    return *verb;
  };
  CLI::App& generate = add("generate", "continue a text", [&] { return RunGenerate(common, text); });
  AddSampling(generate, text);
  AddRepetition(generate, text.generate.repetition);
  CLI::App& translate = add("translate", "write the target of each text", [&] { return RunTranslate(common, text); });
  translate.add_option("texts", text.texts, "source texts; without them, the lines of stdin");
  AddBeams(translate, text);
  AddRepetition(translate, text.translate.repetition);
  CLI::App& classify = add("classify", "print each text's class and probability, or its tags",
                           [&] { return RunClassify(common, text); });
  classify.add_option("texts", text.texts, "texts; without them, the lines of stdin");
  CLI::App& verify = add("verify", "prove a bundle again; exit code 1 if it fails", [&] { return RunVerify(common, seconds); });
  verify.add_option("--seconds", seconds, "longest that the proof may take; default: 3600")->check(CLI::PositiveNumber);
  CLI::App& measure = add("bench", "how fast a bundle writes", [&] { return RunBench(common, bench); });
  measure.add_option("--batch", bench.batch, "texts that are written together; default: 1");
  measure.add_option("--beams", bench.beams, "1 is greedy; default: 1");
  measure.add_option("--prompt-tokens", bench.prompt_tokens, "read before the first token, of a source if there is one; default: 16");
  measure.add_option("--new-tokens", bench.new_tokens, "written in each run; default: 128");
  measure.add_option("--runs", bench.runs, "after one to warm up; default: 5");
  add("info", "what a bundle is, and the onnxruntime that runs it", [&] { return RunInfo(common); });

  CheckNumbers(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::cerr << "seqlab-run: " << error.what() << "; see seqlab-run --help\n";
    return 2;
  }
  const Result<int> code = run();
  if (!code.ok()) {
    std::cout << std::flush;
    std::cerr << "seqlab-run: " << code.status().message() << "\n";
    return 2;
  }
  if (!std::cout.flush() || !seqlab::tools::ForPrograms().flush()) {
    std::cerr << "seqlab-run: stdout cannot be written\n";
    return 2;
  }
  return *code;
}

}  // namespace

int main(int argc, char** argv) {
  const seqlab::tools::ShownForPeople shown;
  try {
    return Main(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "seqlab-run: " << error.what() << "\n";
    return 2;
  }
}
