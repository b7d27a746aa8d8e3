// answer_decoding BUNDLE PROVIDER: decodes with a bundle, to compare with Python.
//
// Each line of stdin is a JSON object. It has "prompts", "sources" if the bundle reads them, and the options of
// `generate` or, with "beams", of `beam_search`; or "prompts" and "steps", which are tokens to read after them; or a
// "batch"; or "verify", a folder to prove. With "cancel" the callback cancels at that token. Each line of stdout is the
// answer in JSON, the logits for "steps" and "batch", or {"refused": message, "code": number}.

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "seqlab/proof.h"

namespace {

using nlohmann::json;

std::optional<int64_t> IntOrNull(const json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<int64_t>());
}

json Refused(const seqlab::Status& status) { return {{"refused", status.message()}, {"code", status.code()}}; }

json Numbers(const seqlab::Result<seqlab::Array>& array) {
  return array.ok() ? json{{"dims", array->dims}, {"values", array->values}} : Refused(array.status());
}

json AnswerBatch(const seqlab::Model& model, const json& question) {
  return Numbers(model.Run({question.at("rows"),
                            question.at("length"),
                            question.at("tokens").get<seqlab::Ids>(),
                            {},
                            question.at("pad_mask").get<std::vector<uint8_t>>()}));
}

// Returns the logits after the prompts, and after each step.
json AnswerSteps(seqlab::Session& session, const std::vector<seqlab::Ids>& prompts, const json& steps) {
  json answer = {Numbers(session.Prefill(prompts))};
  for (const json& tokens : steps) answer.push_back(Numbers(session.Step(tokens.get<seqlab::Ids>())));
  return answer;
}

json AnswerProof(const std::string& folder) {
  const auto report = seqlab::Verify(folder);
  return report.ok() ? json(report->ok()) : Refused(report.status());
}

json Answer(const seqlab::Model& model, seqlab::Session& session, const json& question) {
  if (question.contains("verify")) return AnswerProof(question["verify"]);
  if (question.contains("batch")) return AnswerBatch(model, question["batch"]);
  const auto prompts = question.at("prompts").get<std::vector<seqlab::Ids>>();
  if (question.contains("steps")) return AnswerSteps(session, prompts, question["steps"]);
  const seqlab::Repetition repetition{question.at("penalty"), IntOrNull(question.at("ngram"))};
  if (question.contains("sources")) {
    const seqlab::Status read = session.ReadSource(question["sources"].get<std::vector<seqlab::Ids>>());
    if (!read.ok()) return Refused(read);
  }
  if (question.contains("beams")) {
    const seqlab::BeamOptions options{question["beams"], question.at("max_new_tokens"), question.at("length_penalty"),
                                      repetition, question.at("stop_ids").get<seqlab::Ids>()};
    const auto found = session.BeamSearch(prompts, options);
    if (!found.ok()) return Refused(found.status());
    json answer = json::array();
    for (const auto& hypotheses : *found) {
      answer.push_back(json::array());
      for (const auto& one : hypotheses) answer.back().push_back({{"tokens", one.tokens}, {"score", one.score}});
    }
    return answer;
  }
  const seqlab::Sampling sampling{question.at("temperature"), IntOrNull(question.at("top_k")), question.at("top_p"),
                                  question.at("min_p"), question.at("seed")};
  const seqlab::GenerateOptions options{question.at("max_new_tokens"), sampling, repetition,
                                        question.at("stop_ids").get<seqlab::Ids>()};
  int64_t left = question.value("cancel", int64_t{-1});
  const auto found = session.Generate(prompts, options, [&](int64_t, int64_t) { return left-- != 0; });
  return found.ok() ? json(*found) : Refused(found.status());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  seqlab::OpenOptions options;
  options.provider = argv[2];
  options.threads = 1;
  const auto model = seqlab::Model::Open(argv[1], options);
  if (!model.ok()) {
    std::cerr << model.status().message() << "\n";
    return 2;
  }
  seqlab::Session session(*model);
  for (std::string line; std::getline(std::cin, line);) std::cout << Answer(*model, session, json::parse(line)) << "\n";
}
