#include <algorithm>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "error.h"
#include "json_text.h"
#include "shown.h"
#include "utf8.h"

namespace seqlab::tools {
namespace {

using nlohmann::json;

// Number of lines that are translated together, as in `seqlab translate`.
constexpr size_t kLinesAtOnce = 64;

template <typename T>
json OrNull(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

// Standard input without its byte-order mark and with LF for CRLF, as `_standard_input` of platform/seqlab/cli/text.py
// reads it.
class StandardInput {
 public:
  std::optional<std::string> Line() {
    std::string line;
    if (!std::getline(std::cin, line)) return std::nullopt;
    if (first_ && line.compare(0, kByteOrderMark.size(), kByteOrderMark) == 0) line.erase(0, kByteOrderMark.size());
    first_ = false;
    if (std::cin.eof()) return line;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    return line + '\n';
  }

  std::string Whole() {
    std::string text;
    while (const auto line = Line()) text += *line;
    return text;
  }

 private:
  static constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  bool first_ = true;
};

// The texts of the command line, or else the lines of stdin, one by one. Empty texts are refused, and texts that are
// not UTF-8 unless the tokenizer takes any bytes.
class Texts {
 public:
  Texts(const std::vector<std::string>& given, bool any_bytes) : given_(given), any_bytes_(any_bytes) {}

  Result<std::optional<std::string>> Next() {
    return Guarded([&] {
      std::optional<std::string> text = Read();
      if (!text) return text;
      const std::string place =
          given_.empty() ? Join("line ", number_, " of the standard input") : Join("text ", number_);
      if (Words(*text, false).empty()) {
        Refuse(place, " is empty; give one text a line");
      }
      if (any_bytes_) return text;
      try {
        CheckUtf8(*text);
      } catch (const Refusal& refusal) {
        Refuse(place, ": ", refusal.what());
      }
      return text;
    });
  }

 private:
  std::optional<std::string> Read() {
    ++number_;
    if (!given_.empty()) return number_ <= given_.size() ? std::optional(given_[number_ - 1]) : std::nullopt;
    std::optional<std::string> line = input_.Line();
    if (line && !line->empty() && line->back() == '\n') line->pop_back();
    return line;
  }

  StandardInput input_;
  const std::vector<std::string>& given_;
  const bool any_bytes_;
  size_t number_ = 0;  // number of the last text, from 1
};

}  // namespace

Result<int> RunInfo(const Common& common) {
  const Result<Model> model = Model::Open(common.bundle, common.open);
  if (!model.ok()) return model.status();
  const Info& info = model->info();
  const json facts = {{"bundle", info.folder},
                      {"kind", info.reads_source ? "encoder-decoder"
                               : info.decodes    ? "decoder"
                                                 : "encoder"},
                      {"precision", info.precision},
                      {"vocab_size", OrNull(info.vocab_size)},
                      {"max_seq_len", OrNull(info.max_seq_len)},
                      {"max_source_len", OrNull(info.max_source_len)},
                      {"seq_len", info.seq_len},
                      {"labels", info.labels},
                      {"tokenizer", info.has_tokenizer},
                      {"chats", info.chats},
                      {"run_id", info.run_id},
                      {"commit", info.commit},
                      {"min_onnxruntime", info.min_onnxruntime},
                      {"onnxruntime", info.onnxruntime},
                      {"onnxruntime_file", info.onnxruntime_file},
                      {"onnxruntime_api", info.onnxruntime_api}};
  if (common.json) {
    ForPrograms() << Dumped(facts, 2) << "\n";
    return 0;
  }
  for (const auto& [name, value] : facts.items()) {
    if (!value.is_null())
      std::cout << name << ": " << (value.is_string() ? value.get<std::string>() : Dumped(value)) << "\n";
  }
  return 0;
}

Result<int> RunGenerate(const Common& common, const TextOptions& options) {
  Result<Model> model = Model::Open(common.bundle, common.open);
  if (!model.ok()) return model.status();
  const std::string given = options.prompt.value_or("-");
  const std::string prompt = given == "-" ? StandardInput().Whole() : given;
  Session session(*model);
  const auto show = [&](std::string_view piece) { return common.json || bool(ForPrograms() << piece << std::flush); };
  const Result<std::string> text = session.Write(prompt, options.generate, show);
  // `main` reports that stdout cannot be written.
  if (text.status().code() == StatusCode::kCancelled) return 0;
  if (!text.ok()) return text.status();
  ForPrograms() << (common.json ? Dumped({{"text", *text}}) : "") << "\n";
  return 0;
}

Result<int> RunTranslate(const Common& common, const TextOptions& options) {
  const int64_t beams = options.translate.beams;
  if (options.n_best && (*options.n_best < 1 || *options.n_best > beams)) {
    return Status(StatusCode::kInvalidArgument,
                  Join("--n-best must be from 1 to the number of beams, ", beams, "; got ", *options.n_best));
  }
  Result<Model> model = Model::Open(common.bundle, common.open);
  if (!model.ok()) return model.status();
  Session session(*model);
  Texts texts(options.texts, model->info().takes_any_bytes);
  size_t number = 0;
  for (bool more = true; more;) {
    std::vector<std::string> batch;
    while (more && batch.size() < kLinesAtOnce) {
      Result<std::optional<std::string>> text = texts.Next();
      if (!text.ok()) return text.status();
      more = text->has_value();
      if (more) batch.push_back(**std::move(text));
    }
    if (batch.empty()) break;
    const auto written = session.Translate(batch, options.translate);
    if (!written.ok()) return written.status();
    for (const std::vector<Translation>& best : *written) {
      ++number;
      const size_t count = std::min<size_t>(options.n_best.value_or(1), best.size());
      json found = json::array();
      for (size_t place = 0; place < count; ++place) {
        const Translation& one = best[place];
        found.push_back({{"text", one.text}, {"tokens", one.hypothesis.tokens}, {"score", one.hypothesis.score}});
        if (common.json) continue;
        ForPrograms() << (options.n_best ? std::to_string(number) + "\t" : "") << one.text << "\n";
      }
      if (common.json) ForPrograms() << Dumped({{"line", number}, {"best", found}}) << "\n";
    }
    ForPrograms() << std::flush;
  }
  return 0;
}

Result<int> RunClassify(const Common& common, const TextOptions& options) {
  Result<Model> model = Model::Open(common.bundle, common.open);
  if (!model.ok()) return model.status();
  Session session(*model);
  const std::vector<std::string>& labels = model->info().labels;
  Texts texts(options.texts, model->info().takes_any_bytes);
  while (true) {
    const Result<std::optional<std::string>> text = texts.Next();
    if (!text.ok()) return text.status();
    if (!text->has_value()) return 0;
    const Result<Classes> classes = session.Classify(**text);
    if (!classes.ok()) return classes.status();
    const bool of_words = !classes->words.empty();
    const json found = LabelsOf(*classes, labels);
    for (const json& one : found) {
      if (common.json) break;
      const std::string label = Shown(one["label"].get<std::string>());
      if (of_words) {
        ForPrograms() << one["word"].get<std::string>() << "\t" << label << "\n";
      } else {
        ForPrograms() << label << "\t" << std::fixed << std::setprecision(4) << one["probability"].get<double>()
                      << "\n";
      }
    }
    if (common.json) {
      ForPrograms() << Dumped(of_words ? found : found[0]) << "\n";
    } else if (of_words) {
      ForPrograms() << "\n";
    }
    ForPrograms() << std::flush;
  }
  return 0;
}

}  // namespace seqlab::tools
