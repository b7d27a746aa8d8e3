// answer_engine BUNDLE: decodes requests together, to compare with each alone.
//
// Each line of stdin is a JSON object: "bounds" of an engine, and "requests", each with "prompt", "source" if the
// bundle reads one, the options of `generate`, and perhaps "row", "likeliest", "after" (it is submitted when the
// requests together have that many tokens) and "cancel" (it is cancelled at that token). Each line of stdout has the
// "answers", each {"tokens", "finish", "cached", "known"} or {"refused": message, "code": number}, and the engine's
// "stats".

#include <condition_variable>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "seqlab/engine.h"

namespace {

using nlohmann::json;

std::optional<int64_t> IntOrNull(const json& value, const char* name) {
  return value.contains(name) && !value[name].is_null() ? std::optional(value[name].get<int64_t>()) : std::nullopt;
}

json Refused(const seqlab::Status& status) { return {{"refused", status.message()}, {"code", status.code()}}; }

seqlab::EngineOptions Bounds(const json& given) {
  seqlab::EngineOptions options;
  options.memory = given.value("memory", options.memory);
  options.prefix_memory = given.value("prefix_memory", options.prefix_memory);
  options.max_running = given.value("max_running", options.max_running);
  options.max_waiting = given.value("max_waiting", options.max_waiting);
  options.chunk = given.value("chunk", options.chunk);
  return options;
}

seqlab::Request Asked(const json& question) {
  seqlab::Request request;
  request.prompt = question.at("prompt").get<seqlab::Ids>();
  request.source = question.value("source", seqlab::Ids());
  seqlab::GenerateOptions& options = request.options;
  options.max_new_tokens = question.at("max_new_tokens");
  options.stop_ids = question.value("stop_ids", seqlab::Ids());
  options.repetition = {question.value("penalty", 1.0), IntOrNull(question, "ngram")};
  options.sampling = {question.value("temperature", 1.0), IntOrNull(question, "top_k"), question.value("top_p", 1.0),
                      question.value("min_p", 0.0), question.value("seed", uint64_t{0})};
  request.row = question.value("row", int64_t{0});
  request.likeliest = IntOrNull(question, "likeliest");
  return request;
}

json Answer(const seqlab::Model& model, const json& question) {
  seqlab::Result<seqlab::Engine> engine =
      seqlab::Engine::Start(model, Bounds(question.value("bounds", json::object())));
  if (!engine.ok()) return Refused(engine.status());
  std::mutex mutex;
  std::condition_variable changed;
  int64_t written = 0;
  json answers = json::array();
  for (size_t number = 0; number < question.at("requests").size(); ++number)
    answers.push_back({{"tokens", json::array()}});
  for (size_t number = 0; number < answers.size(); ++number) {
    const json& asked = question["requests"][number];
    seqlab::Request request = Asked(asked);
    const int64_t most = asked.value("cancel", int64_t{1} << 40);
    request.on_token = [&, number, most](const seqlab::NewToken& token) {
      const std::lock_guard lock(mutex);
      json& answer = answers[number];
      answer["tokens"].push_back(token.id);
      if (token.log_probability) answer["known"].push_back({*token.log_probability, token.likeliest});
      ++written;
      changed.notify_all();
      return static_cast<int64_t>(answer["tokens"].size()) < most;
    };
    request.on_end = [&, number](const seqlab::Outcome& outcome) {
      const std::lock_guard lock(mutex);
      answers[number]["finish"] = outcome.finish;
      answers[number]["cached"] = outcome.cached_tokens;
      if (!outcome.status.ok()) answers[number].update(Refused(outcome.status));
    };
    {
      std::unique_lock lock(mutex);
      const int64_t after = asked.value("after", int64_t{0});
      changed.wait_for(lock, std::chrono::seconds(20), [&] { return written >= after; });
    }
    const seqlab::Result<uint64_t> id = engine->Submit(std::move(request));
    const std::lock_guard lock(mutex);
    if (!id.ok()) answers[number] = Refused(id.status());
  }
  engine->Drain();
  const seqlab::EngineStats stats = engine->stats();
  return {{"answers", answers},
          {"stats",
           {{"running", stats.running},
            {"waiting", stats.waiting},
            {"memory", stats.memory},
            {"prefix_memory", stats.prefix_memory},
            {"steps", stats.steps},
            {"new_tokens", stats.new_tokens},
            {"prompt_tokens", stats.prompt_tokens},
            {"cached_tokens", stats.cached_tokens},
            {"finished", stats.finished},
            {"cancelled", stats.cancelled},
            {"failed", stats.failed}}}};
}

}  // namespace

int main(int argc, char** argv) {
  const auto model =
      argc == 2 ? seqlab::Model::Open(argv[1]) : seqlab::Status(seqlab::StatusCode::kInvalidArgument, "");
  if (!model.ok()) {
    std::cerr << model.status().message() << "\n";
    return 2;
  }
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << Answer(*model, json::parse(line)).dump() << std::endl;
  }
}
