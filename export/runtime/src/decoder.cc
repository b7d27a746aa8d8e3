#include "decoder.h"

#include <algorithm>
#include <numeric>

#include "error.h"
#include "joined_state.h"

namespace seqlab {

namespace {

// Returns true if these are all of `count` rows, in order.
bool InPlace(const std::vector<int64_t>& rows, int64_t count) {
  bool all = static_cast<int64_t>(rows.size()) == count;
  for (size_t place = 0; place < rows.size(); ++place) all &= rows[place] == static_cast<int64_t>(place);
  return all;
}

const Graph& ModelOf(const Bundle& bundle) {
  if (bundle.model == nullptr) {
    Refuse(bundle.folder.string(), " is the bundle of an encoder, which writes nothing; classify with it");
  }
  return *bundle.model;
}

// Entries that a prefill writes in place: none if it begins from a source's state, which later ones begin from too. Not
// on a device, where it was not tried.
std::vector<std::string> WrittenByPrefills(const Bundle& bundle) {
  if (bundle.encoder != nullptr || bundle.options.provider != "cpu") return {};
  return bundle.manifest.in_place;
}

}  // namespace

Logits ToLogits(int64_t rows, int64_t vocab_size, std::vector<float> numbers) {
  const auto held = std::make_shared<const std::vector<float>>(std::move(numbers));
  return {rows, vocab_size, {held, held->data()}};
}

Decoder::Decoder(const Bundle& bundle)
    : bundle_(bundle),
      prefills_(ModelOf(bundle), WrittenByPrefills(bundle)),
      steps_(*bundle.step, bundle.manifest.in_place),
      of_model_(WiringOf(bundle.model->info())),
      of_step_(WiringOf(bundle.step->info())) {
  const std::vector<int>& renewed = of_step_.outputs;
  for (size_t entry = 0; entry < bundle.manifest.state.size(); ++entry) {
    const bool stays = std::find(renewed.begin(), renewed.end(), static_cast<int>(entry)) == renewed.end();
    const bool once = bundle.manifest.state[entry].Axis("N") == 0;
    (once ? shared_ : stays ? constant_ : renewed_).entries.push_back(entry);
  }
}

Decoder::Wiring Decoder::WiringOf(const GraphInfo& info) const {
  const auto entry = [&](const std::string& name, const std::string& prefix) {
    const auto& state = bundle_.manifest.state;
    for (size_t place = 0; place < state.size(); ++place) {
      if (prefix + state[place].name == name) return static_cast<int>(place);
    }
    Refuse(StatusCode::kDamagedBundle, info.file, " has \"", name, "\", which is no entry of the state");
  };
  const bool scores = &info != &bundle_.step->info();
  Wiring wiring;
  for (const TensorInfo& input : info.inputs) {
    wiring.inputs.push_back(input.name == "tokens"             ? kTokens
                            : input.name == "pad_mask"         ? kMask
                            : scores && input.name == "scored" ? kScored
                                                               : entry(input.name, "state_"));
  }
  for (const TensorInfo& output : info.outputs) {
    wiring.outputs.push_back(output.name == "logits"    ? kLogits
                             : output.name == "guesses" ? kGuesses
                                                        : entry(output.name, "new_state_"));
  }
  return wiring;
}

void Decoder::ReadSource(const Value& source, const Value& mask) {
  const std::vector<Value> outputs = bundle_.Encode(source, mask);
  const std::vector<TensorInfo>& infos = bundle_.encoder->info().outputs;
  source_.clear();
  for (const StateInfo& entry : bundle_.manifest.state) {
    const auto found = std::find_if(infos.begin(), infos.end(),
                                    [&](const TensorInfo& info) { return info.name == "state_" + entry.name; });
    source_.push_back(outputs[static_cast<size_t>(found - infos.begin())]);
  }
  rows_ = Dims(source)[0];
  state_.clear();
}

void Decoder::Start(int64_t rows) {
  if (bundle_.encoder != nullptr) {
    if (source_.empty()) Refuse(bundle_.folder.string(), " writes what a source says; read one first");
    const int64_t sources = source_.empty() ? rows : Dims(source_[0])[0];
    if (sources != rows) Refuse("there are ", rows, " prompts and ", sources, " sources; give one prompt for each");
    state_ = source_;
  } else {
    state_.clear();
    for (const StateInfo& entry : bundle_.manifest.state) {
      state_.push_back(FilledTensor(entry.dtype, SizesOf(bundle_.manifest, entry, rows, 0, 0), *entry.initial));
    }
  }
  rows_ = rows;
  sources_.resize(static_cast<size_t>(rows));
  std::iota(sources_.begin(), sources_.end(), int64_t{0});
  read_ = 0;
}

Value Decoder::Run(const Graph& graph, const Rows& rows) {
  if (&graph == bundle_.step.get()) return Read(rows.Tokens(), rows.Mask(), nullptr);
  Ids all(static_cast<size_t>(rows.length));
  std::iota(all.begin(), all.end(), int64_t{0});
  return RunScoring(rows, all);
}

Value Decoder::RunScoring(const Rows& rows, const Ids& scored) {
  const auto count = static_cast<int64_t>(scored.size());
  return Read(rows.Tokens(), rows.Mask(), HostTensor(DType::kInt64, {count}, scored.data()));
}

Value Decoder::Read(const Value& tokens, const Value& mask, const Value& scored) {
  const bool is_step = scored == nullptr;
  const Wiring& wiring = is_step ? of_step_ : of_model_;
  const std::vector<Value> outputs = (is_step ? steps_ : prefills_).Run(InputsOf(wiring, tokens, mask, scored));
  Value logits;
  for (size_t place = 0; place < outputs.size(); ++place) {
    const int target = wiring.outputs[place];
    (target == kLogits ? logits : state_[static_cast<size_t>(target)]) = outputs[place];
  }
  CheckDims(logits, {rows_, is_step ? 1 : Dims(scored)[0], vocab_size()});
  read_ += Dims(tokens)[1];
  return logits;
}

std::vector<Value> Decoder::InputsOf(const Wiring& wiring, const Value& tokens, const Value& mask,
                                     const Value& scored) const {
  std::vector<Value> inputs;
  for (const int source : wiring.inputs) {
    inputs.push_back(source == kTokens   ? tokens
                     : source == kMask   ? mask
                     : source == kScored ? scored
                                         : state_[static_cast<size_t>(source)]);
  }
  return inputs;
}

int64_t Decoder::num_ahead() const {
  return bundle_.guess == nullptr ? 0 : std::get<int64_t>(bundle_.guess->info().outputs.back().dims[2]);
}

Decoder::Guessed Decoder::Guess(const Ids& tokens, int64_t first) {
  const auto length = static_cast<int64_t>(tokens.size());
  Ids scored(static_cast<size_t>(length - first));
  std::iota(scored.begin(), scored.end(), first);
  const Wiring wiring = WiringOf(bundle_.guess->info());
  const auto count = static_cast<int64_t>(scored.size());
  const std::vector<Value> outputs = bundle_.guess->Run(
      InputsOf(wiring, HostTensor(DType::kInt64, {1, length}, tokens.data()),
               FilledTensor(DType::kBool, {1, length}, 1), HostTensor(DType::kInt64, {count}, scored.data())));
  Guessed guessed;
  next_ = state_;
  for (size_t place = 0; place < outputs.size(); ++place) {
    const int target = wiring.outputs[place];
    if (target == kLogits) {
      CheckDims(outputs[place], {1, count, vocab_size()});
      guessed.logits = ToLogits(count, vocab_size(), Floats(outputs[place]));
    } else if (target == kGuesses) {
      CheckDims(outputs[place], {1, count, num_ahead()});
      const auto* ids = outputs[place]->GetTensorData<int64_t>();
      for (int64_t row = 0; row < count; ++row, ids += num_ahead()) guessed.tokens.emplace_back(ids, ids + num_ahead());
    } else {
      next_[static_cast<size_t>(target)] = outputs[place];
    }
  }
  return guessed;
}

void Decoder::Keep() { state_ = std::move(next_); }

Logits Decoder::Prefill(const std::vector<Ids>& prompts) {
  const Rows rows = Padded(prompts, "prompt", true);
  CheckReadable(rows.tokens, rows.length);
  Start(rows.rows);
  // Prompts are padded on the left, so each ends at the last position.
  return OfLastPosition(RunScoring(rows, {rows.length - 1}));
}

Logits Decoder::Step(const Ids& tokens) {
  if (state_.empty()) Refuse("a step continues a text; read a prompt first");
  if (static_cast<int64_t>(tokens.size()) != rows_) {
    Refuse("there are ", tokens.size(), " tokens for ", rows_, " rows; give one for each");
  }
  CheckReadable(tokens, read_ + 1);
  if (all_real_ == nullptr || Dims(all_real_)[0] != rows_) all_real_ = FilledTensor(DType::kBool, {rows_, 1}, 1);
  return OfLastPosition(Read(HostTensor(DType::kInt64, {rows_, 1}, tokens.data()), all_real_, nullptr));
}

Logits Decoder::Extend(const Ids& tokens) {
  const auto length = static_cast<int64_t>(tokens.size());
  CheckReadable(tokens, read_ + length);
  return OfLastPosition(RunScoring({1, length, tokens, std::vector<uint8_t>(tokens.size(), 1)}, {length - 1}));
}

void Decoder::Resume(std::vector<Value> state, int64_t rows, int64_t read) {
  state_ = std::move(state);
  rows_ = rows;
  read_ = read;
}

Logits Decoder::OfLastPosition(const Value& logits) const {
  if (TypeOf(logits) != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT) {
    return ToLogits(rows_, vocab_size(), Floats(logits));
  }
  return {rows_, vocab_size(), {logits, logits->GetTensorData<float>()}};
}

void Decoder::CheckReadable(const Ids& tokens, int64_t read) const {
  for (const int64_t token : tokens) {
    if (token < 0 || token >= vocab_size()) {
      Refuse("token ", token, " is outside the vocabulary 0..", vocab_size() - 1);
    }
  }
  if (const auto most = bundle_.manifest.max_seq_len; most && read > *most) {
    Refuse("a text of ", read, " tokens is longer than the model reads, which is ", *most);
  }
}

void Decoder::Select(const std::vector<int64_t>& rows) {
  std::vector<int64_t> sources;
  for (const int64_t row : rows) sources.push_back(sources_[static_cast<size_t>(row)]);
  Take(renewed_, rows, rows_);
  if (sources != sources_) {
    Take(constant_, rows, rows_);
    TakeSources(rows);
  }
  sources_ = std::move(sources);
  rows_ = static_cast<int64_t>(rows.size());
}

void Decoder::TakeSources(const std::vector<int64_t>& rows) {
  if (shared_.entries.empty()) return;
  const size_t entry = shared_.entries[0];
  const std::vector<int64_t> dims = Dims(state_[entry]);
  const int64_t before = dims.empty() ? 0 : dims[0];
  if (before < 1 || rows_ % before != 0) {
    Refuse(StatusCode::kDamagedBundle, "state entry ", bundle_.manifest.state[entry].name, " has ", before,
           " rows, for ", rows_, " of the batch");
  }
  const int64_t each = rows_ / before;
  auto beams = static_cast<int64_t>(rows.size());
  for (size_t place = 1; place < rows.size(); ++place) {
    if (rows[place] / each != rows[place - 1] / each) beams = std::gcd(beams, static_cast<int64_t>(place));
  }
  std::vector<int64_t> sources;
  for (size_t place = 0; place < rows.size(); place += static_cast<size_t>(beams))
    sources.push_back(rows[place] / each);
  Take(shared_, sources, before);
}

void Decoder::Take(Part& part, const std::vector<int64_t>& rows, int64_t count) {
  if (part.entries.empty() || InPlace(rows, count)) return;
  std::vector<Value> whole;
  for (const size_t entry : part.entries) whole.push_back(state_[entry]);
  if (part.selection == nullptr) {
    part.selection = std::make_unique<RowSelection>(bundle_, whole, bundle_.options.provider);
  }
  const std::vector<Value> taken = part.selection->Take(whole, rows);
  for (size_t place = 0; place < taken.size(); ++place) state_[part.entries[place]] = taken[place];
}

const Value& Decoder::State(const std::string& name) const {
  const auto& state = bundle_.manifest.state;
  const auto found =
      std::find_if(state.begin(), state.end(), [&](const StateInfo& entry) { return entry.name == name; });
  return state_[static_cast<size_t>(found - state.begin())];
}

}  // namespace seqlab
