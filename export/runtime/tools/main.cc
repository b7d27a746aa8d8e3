// seqlab-run: bundles from the command line. Results go to stdout, diagnostics to stderr.
//
// Exit codes: 0 success, 1 a proof that failed, 2 bad input, reported in one sentence.

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
using seqlab::tools::ServeCommand;
using seqlab::tools::TextOptions;

// Adds the options of `generate`, with the help and the defaults of platform/seqlab/config/text_options.py.
void AddSampling(CLI::App& verb, TextOptions& options) {
  seqlab::Sampling& sampling = options.generate.sampling;
  verb.add_option("--prompt", options.prompt, "the text to continue; without it, or -, all of stdin");
  verb.add_option("--max-new-tokens", options.generate.max_new_tokens, "maximum number of tokens to generate")
      ->capture_default_str();
  verb.add_option("--temperature", sampling.temperature, "sampling temperature; 0 is greedy")->capture_default_str();
  verb.add_option("--top-k", sampling.top_k, "sample from the K likeliest tokens");
  verb.add_option("--top-p", sampling.top_p, "sample from the likeliest tokens of total probability P")
      ->capture_default_str();
  verb.add_option("--min-p", sampling.min_p, "sample from tokens at least P times as likely as the likeliest")
      ->capture_default_str();
  // CLI11 would read -1 as 2^64 - 1.
  const auto set_seed = [&sampling](const std::string& text) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), sampling.seed);
    if (error != std::errc() || end != text.data() + text.size()) {
      throw CLI::ValidationError("--seed must be from 0 to 2^64 - 1, got " + text);
    }
  };
  verb.add_option_function<std::string>("--seed", set_seed, "random seed")->default_str(std::to_string(sampling.seed));
}

void AddRepetition(CLI::App& verb, seqlab::Repetition& repetition) {
  verb.add_option("--repetition-penalty", repetition.penalty, "above 1 penalises repetition")->capture_default_str();
  verb.add_option("--no-repeat-ngram", repetition.ngram, "never repeat a sequence of N tokens");
}

void AddBeams(CLI::App& verb, TextOptions& options) {
  verb.add_option("--beams", options.translate.beams, "number of beams; 1 is greedy")->capture_default_str();
  const char* penalty = "exponent of the length; 0 favours short outputs";
  verb.add_option("--length-penalty", options.translate.length_penalty, penalty)->capture_default_str();
  verb.add_option("--n-best", options.n_best, "print the N best outputs per line, each after the line number");
  verb.add_option("--prefix", options.translate.prefix, "text that every output begins with");
}

// Returns true if a text is a number and nothing else. Its range is checked elsewhere.
template <typename Number>
bool IsNumber(const std::string& text) {
  Number number{};
  const char* end = text.data() + text.size();
  // "inf" and "nan" are no option's value.
  const bool decimal = !text.empty() && text.find_first_not_of("0123456789.eE+-") == std::string::npos;
  return decimal && std::from_chars(text.data(), end, number).ptr == end;
}

// Accepts only decimal numbers, as `seqlab` does. CLI11 would accept others, and read an empty text as 0.
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
  app.set_version_flag("--version", SEQLAB_VERSION);
  Common common;
  TextOptions text;
  BenchOptions bench;
  double seconds = seqlab::kProofSeconds;
  std::function<Result<int>()> run;
  const auto add = [&](const char* name, const char* what, std::function<Result<int>()> then) -> CLI::App& {
    CLI::App* verb = app.add_subcommand(name, what);
    verb->add_option("bundle", common.bundle, "bundle folder")->required();
    verb->add_option("--provider", common.open.provider, "device of onnxruntime, cpu or cuda; default: cpu");
    verb->add_option("--threads", common.open.threads,
                     "number of threads; default: onnxruntime's choice, one per core");
    verb->add_option("--ort-lib", common.open.onnxruntime, "path of onnxruntime's shared library");
    verb->add_flag("--json", common.json, "print JSON");
    verb->callback([&run, then = std::move(then)] { run = then; });
    return *verb;
  };
  CLI::App& generate = add("generate", "generate text from a prompt", [&] { return RunGenerate(common, text); });
  AddSampling(generate, text);
  AddRepetition(generate, text.generate.repetition);
  CLI::App& translate = add("translate", "translate each text", [&] { return RunTranslate(common, text); });
  translate.add_option("texts", text.texts, "source texts; without them, the lines of stdin");
  AddBeams(translate, text);
  AddRepetition(translate, text.translate.repetition);
  CLI::App& classify = add("classify", "classify or tag each text", [&] { return RunClassify(common, text); });
  classify.add_option("texts", text.texts, "texts; without them, the lines of stdin");
  CLI::App& verify = add("verify", "prove a bundle on this machine; exit code 1 if a check fails",
                         [&] { return RunVerify(common, seconds); });
  verify.add_option("--seconds", seconds, "seconds that the proof may take; default: 3600")->check(CLI::PositiveNumber);
  CLI::App& measure = add("bench", "measure decoding speed", [&] { return RunBench(common, bench); });
  measure.add_option("--batch", bench.batch, "batch size; default: 1");
  measure.add_option("--beams", bench.beams, "number of beams; 1 is greedy; default: 1");
  measure.add_option("--prompt-tokens", bench.prompt_tokens, "length of the prompt or source in tokens; default: 16");
  measure.add_option("--new-tokens", bench.new_tokens, "number of tokens generated per run; default: 128");
  measure.add_option("--runs", bench.runs, "number of timed runs after one warm-up; default: 5");
  ServeCommand serving;
  CLI::App& serve = *app.add_subcommand("serve", "serve bundles over HTTP");
  serve.add_option("bundles", serving.bundles, "bundle folders")->required();
  serve.add_option("--host", serving.options.host, "address to listen at")->capture_default_str();
  serve.add_option("--port", serving.options.port, "port to listen at; 0 is any that is free")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  serve.add_option("--memory", serving.options.engine.memory, "memory for the states of running requests; default: 1G")
      ->transform(CLI::AsSizeValue(false));
  serve
      .add_option("--prefix-memory", serving.options.engine.prefix_memory,
                  "memory for states of prompts that begin alike; default: 64M")
      ->transform(CLI::AsSizeValue(false));
  serve.add_option("--connections", serving.options.connections, "number of clients that are answered at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  serve.add_option("--threads", serving.open.threads, "number of threads; default: onnxruntime's choice, one per core");
  serve.add_flag("--log", serving.options.log, "tell each answer on stderr");
  serve.add_option("--ort-lib", serving.open.onnxruntime, "path of onnxruntime's shared library");
  serve.callback([&] { run = [&] { return RunServe(serving); }; });
  add("info", "describe a bundle and the onnxruntime that runs it", [&] { return RunInfo(common); });

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
