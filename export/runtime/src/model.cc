// Model and Session: the boundary at which exceptions become values.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bundle.h"
#include "error.h"
#include "generate.h"
#include "seqlab/runtime.h"

namespace seqlab {
namespace {

Array ToArray(const Logits& logits) {
  const float* first = logits.Row(0);
  return {{logits.rows, logits.vocab_size}, {first, first + logits.rows * logits.vocab_size}};
}

}  // namespace

Result<Model> Model::Open(const std::string& folder, const OpenOptions& options) {
  return Guarded([&] { return Model(std::make_shared<const Bundle>(folder, options)); });
}

const Info& Model::info() const { return bundle_->info; }

Result<Array> Model::Run(const Batch& batch) const {
  return Guarded([&] {
    if (bundle_->info.reads_source) Refuse(bundle_->info.folder, " decodes from a source; use a Session");
    Rows rows{batch.rows, batch.length, batch.tokens, batch.pad_mask};
    constexpr int64_t kMost = int64_t{1} << 31;
    if (rows.rows < 1 || rows.length < 1 || rows.rows > kMost / rows.length) {
      Refuse("a batch has at least one row and one token, and at most 2^31 tokens");
    }
    const auto count = static_cast<size_t>(rows.rows * rows.length);
    if (rows.mask.empty()) rows.mask.assign(count, 1);
    const GraphInfo& info = *bundle_->manifest.Graphs()[0];
    const bool features = bundle_->encoder != nullptr && info.inputs[0].IsFloat();
    const size_t width = features ? static_cast<size_t>(std::get<int64_t>(info.inputs[0].dims.back())) : 1;
    if (rows.mask.size() != count || (features ? batch.features.size() : rows.tokens.size()) != count * width) {
      Refuse("a batch of ", rows.rows, " rows of ", rows.length, " must have ", count * width, " numbers and ", count,
             " in its mask");
    }
    CheckPadding(rows);
    Value logits;
    if (bundle_->encoder != nullptr) {
      const Value inputs = features ? FloatTensor(info.inputs[0].dtype,
                                                  {rows.rows, rows.length, static_cast<int64_t>(width)}, batch.features)
                                    : rows.Tokens();
      logits = bundle_->Encode(inputs, rows.Mask())[0];
    } else {
      Decoder decoder(*bundle_);
      decoder.CheckReadable(rows.tokens, MostReal(rows.Mask()));
      decoder.Start(rows.rows);
      logits = decoder.Run(*bundle_->model, rows);
    }
    return Array{Dims(logits), Floats(logits)};
  });
}

Result<Ids> Model::Encode(std::string_view text) const {
  return Guarded([&] { return bundle_->tokenizer.get().Encode(text); });
}

Result<Ids> Model::EncodeSource(std::string_view text) const {
  return Guarded([&] { return bundle_->SourceTokenizer().Encode(text); });
}

Result<std::string> Model::Decode(const Ids& ids) const {
  return Guarded([&] { return bundle_->tokenizer.get().Decode(ids); });
}

Result<std::string> Model::TokenBytes(int64_t id) const {
  return Guarded([&] { return bundle_->tokenizer.get().Bytes(id); });
}

Result<Ids> Model::EncodePrompt(std::string_view text) const {
  return Guarded([&] { return seqlab::EncodePrompt(*bundle_, text); });
}

Result<Ids> Model::EncodeChat(const std::vector<Message>& messages) const {
  return Guarded([&] {
    const Tokenizer& tokenizer = bundle_->tokenizer.get();
    if (!tokenizer.chat()) Refuse("this model was not trained on chats: its tokenizer has no chat template");
    return tokenizer.chat()->Encode(tokenizer, messages);
  });
}

struct Session::Impl {
  explicit Impl(std::shared_ptr<const Bundle> opened) : bundle(std::move(opened)) {}

  // Returns the decoder, made when first needed. Throws Refusal if the bundle has none.
  Decoder& decoder() {
    if (made == nullptr) made = std::make_unique<Decoder>(*bundle);
    return *made;
  }

  const std::shared_ptr<const Bundle> bundle;
  std::unique_ptr<Decoder> made;
};

Session::Session(Model model) : impl_(std::make_unique<Impl>(std::move(model.bundle_))) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

Status Session::ReadSource(const std::vector<Ids>& sources) {
  return Guarded([&] {
    const Rows rows = Padded(sources, "source", false);
    impl_->decoder().ReadSource(rows.Tokens(), rows.Mask());
  });
}

Result<Array> Session::Prefill(const std::vector<Ids>& prompts) {
  return Guarded([&] { return ToArray(impl_->decoder().Prefill(prompts)); });
}

Result<Array> Session::Step(const Ids& tokens) {
  return Guarded([&] { return ToArray(impl_->decoder().Step(tokens)); });
}

Result<std::vector<Ids>> Session::Generate(const std::vector<Ids>& prompts, const GenerateOptions& options,
                                           const OnToken& on_token) {
  return Guarded([&] { return seqlab::Generate(impl_->decoder(), prompts, options, on_token); });
}

Result<std::vector<std::vector<Hypothesis>>> Session::BeamSearch(const std::vector<Ids>& prompts,
                                                                 const BeamOptions& options) {
  return Guarded([&] { return seqlab::BeamSearch(impl_->decoder(), prompts, options); });
}

Result<std::string> Session::Write(std::string_view prompt, const GenerateOptions& options, const OnText& on_text) {
  return Guarded([&] { return seqlab::Write(impl_->decoder(), prompt, options, on_text); });
}

Result<std::vector<std::vector<Translation>>> Session::Translate(const std::vector<std::string>& texts,
                                                                 const TranslateOptions& options) {
  return Guarded([&] {
    const Tokenizer &tokenizer = impl_->bundle->tokenizer.get(), &of_source = impl_->bundle->SourceTokenizer();
    std::vector<Ids> sources;
    for (const std::string& text : texts) {
      sources.push_back(of_source.Encode(text));
      sources.back().push_back(of_source.eos_id());
    }
    const Ids forced = tokenizer.Encode(options.prefix);
    const auto written = static_cast<int64_t>(forced.size()), most = impl_->bundle->manifest.seq_len;
    if (written >= most) Refuse("the prefix has ", written, " tokens, a target at most ", most, "; shorten it");
    Ids prompt = {tokenizer.bos_id()};
    prompt.insert(prompt.end(), forced.begin(), forced.end());
    const Rows rows = Padded(sources, "text", false);
    impl_->decoder().ReadSource(rows.Tokens(), rows.Mask());
    const BeamOptions search = {options.beams, most - written, options.length_penalty, options.repetition,
                                impl_->bundle->manifest.stop_ids};
    std::vector<std::vector<Translation>> translations;
    for (auto& found : seqlab::BeamSearch(impl_->decoder(), std::vector<Ids>(texts.size(), prompt), search)) {
      translations.emplace_back();
      for (Hypothesis& hypothesis : found) {
        Ids whole = forced;
        whole.insert(whole.end(), hypothesis.tokens.begin(), hypothesis.tokens.end());
        translations.back().push_back({tokenizer.Decode(whole), std::move(hypothesis)});
      }
    }
    return translations;
  });
}

Result<Classes> Session::Classify(std::string_view text) {
  return Guarded([&] {
    const Bundle& bundle = *impl_->bundle;
    if (bundle.model != nullptr || bundle.manifest.labels.empty()) {
      Refuse("classify reads texts: it needs a bundle with classes, ", bundle.info.folder, " has none");
    }
    const std::vector<std::string_view> words = Words(text, false);
    if (words.empty()) Refuse("the text is empty; give one with a word at least");
    const Rows rows = Padded({bundle.tokenizer.get().Encode(text)}, "text", false);
    const Value logits = bundle.Encode(rows.Tokens(), rows.Mask())[0];
    // (1, C), or (1, T, C), which are T rows.
    Classes classes;
    if (Dims(logits).size() == 3) {
      if (static_cast<size_t>(rows.length) != words.size()) {
        Refuse("the text has ", words.size(), " words and ", rows.length, " tokens; tags are of words");
      }
      classes.words.assign(words.begin(), words.end());
      classes.rows = rows.length;
    }
    const auto num_classes = static_cast<int64_t>(bundle.manifest.labels.size());
    CheckDims(logits, !classes.words.empty() ? std::vector<int64_t>{1, rows.length, num_classes}
                                             : std::vector<int64_t>{1, num_classes});
    classes.probabilities = Doubles(logits);
    for (auto row = classes.probabilities.begin(); row != classes.probabilities.end(); row += num_classes) {
      const double largest = *std::max_element(row, row + num_classes);
      std::transform(row, row + num_classes, row, [&](double logit) { return std::exp(logit - largest); });
      const double sum = std::accumulate(row, row + num_classes, 0.0);
      std::transform(row, row + num_classes, row, [&](double power) { return power / sum; });
    }
    return classes;
  });
}

}  // namespace seqlab
