#include "case_runner.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "error.h"

namespace seqlab {

std::vector<Output> CaseRunner::Encode(const Case& some, const Ids& rows) {
  const std::vector<Value> found = bundle_.Encode(Inputs(some, rows, some.length), MaskOf(some, rows, some.length));
  std::vector<Output> outputs;
  for (size_t place = 0; place < found.size(); ++place) {
    const TensorInfo& info = bundle_.encoder->info().outputs[place];
    outputs.emplace_back([this, &info, value = found[place]] { return NumbersOf(value, info); });
  }
  return outputs;
}

std::vector<Output> CaseRunner::Decode(const std::string& form, const Case& some, const Ids& rows) {
  const NpyArray& tokens = golden_.At(some.name + "/tokens", {some.rows(), some.length});
  Decoder decoder = Started(some.name, rows);
  std::vector<Value> logits;
  for (const Span call : Calls(form, some, bundle_.manifest.first_call)) {
    const Graph& graph = form == "step" && call.size() == 1 ? *bundle_.step : *bundle_.model;
    logits.push_back(Run(decoder, graph, some, tokens, rows, call));
  }
  std::vector<Output> outputs;
  for (const TensorInfo& info : bundle_.model->info().outputs) {
    if (info.name == "logits") {
      outputs.emplace_back([this, &info, calls = std::move(logits)] {
        std::vector<Numbers> parts;
        for (const Value& call : calls) parts.push_back(NumbersOf(call, info));
        return Concatenated(std::move(parts), 1);
      });
    } else {
      outputs.emplace_back([this, &info, value = StateOf(decoder, info)] { return NumbersOf(value, info); });
    }
  }
  return outputs;
}

std::vector<std::vector<double>> CaseRunner::DecodeLong(const Case& some) {
  const Ids rows = AllRows(some.rows());
  const NpyArray& tokens = golden_.At(some.name + "/tokens", {some.rows(), some.length});
  Decoder decoder = Started(some.name, rows);
  const GraphInfo& info = bundle_.model->info();
  const std::vector<Span> calls = Calls("long", some, bundle_.manifest.first_call);
  std::vector<double> logits;
  for (const Span call : calls) {
    const Graph& graph = call.size() == 1 ? *bundle_.step : *bundle_.model;
    const Numbers found = NumbersOf(Run(decoder, graph, some, tokens, rows, call), info.outputs[0]);
    const Case part{"", call.size(), some.Mask(rows, call)};
    const std::vector<double> taken = Selected(found, info.outputs[0], part, proof::kMostNumbers / calls.size());
    logits.insert(logits.end(), taken.begin(), taken.end());
  }
  std::vector<std::vector<double>> selected;
  for (size_t place = 0; place < info.outputs.size(); ++place) {
    const TensorInfo& output = info.outputs[place];
    selected.push_back(output.name == "logits" ? logits
                                               : Selected(NumbersOf(StateOf(decoder, output), output), output, some,
                                                          MostNumbers(info, place)));
  }
  return selected;
}

std::vector<std::vector<double>> CaseRunner::EncodeInOneCall(const Case& text, int64_t length,
                                                             const std::vector<size_t>& most) {
  const Case read{text.name, length, std::vector<uint8_t>(static_cast<size_t>(length), 1)};
  const std::vector<Value> found = bundle_.Encode(Inputs(text, {0}, length), MaskOf(read, {0}, length));
  std::vector<std::vector<double>> selected;
  for (size_t place = 0; place < found.size(); ++place) {
    const TensorInfo& output = bundle_.encoder->info().outputs[place];
    selected.push_back(Selected(NumbersOf(found[place], output), output, read, most[place]));
  }
  return selected;
}

std::vector<double> CaseRunner::DecodeInOneCall(const Case& text, int64_t length, size_t most) {
  const NpyArray& tokens = golden_.At(text.name + "/tokens", {1, text.length});
  Decoder decoder = Started(text.name, {0});
  const int64_t vocab_size = *bundle_.manifest.vocab_size;
  const std::vector<size_t> places = SpreadPlaces(static_cast<size_t>(length * vocab_size), most);
  // The positions of these numbers, and the last one, are scored.
  std::set<int64_t> positions = {length - 1};
  for (const size_t place : places) positions.insert(static_cast<int64_t>(place) / vocab_size);
  const Ids scored(positions.begin(), positions.end());
  const Value logits = OnHost(decoder.RunScoring(RowsOf(text, tokens, {0}, {0, length}), scored));
  std::vector<double> selected;
  for (const size_t place : places) {
    const auto row = std::lower_bound(scored.begin(), scored.end(), static_cast<int64_t>(place) / vocab_size);
    const int64_t first = (row - scored.begin()) * vocab_size + static_cast<int64_t>(place) % vocab_size;
    selected.push_back(Floats(logits, first, 1)[0]);
  }
  const auto add = [&](const std::vector<double>& more) { selected.insert(selected.end(), more.begin(), more.end()); };
  const auto count = static_cast<int64_t>(scored.size());
  add(Spread(logits, {(count - 1) * vocab_size, count * vocab_size}, most));
  if (length < text.length) {
    add(Spread(Run(decoder, *bundle_.step, text, tokens, {0}, {length, length + 1}), {0, vocab_size}, most));
  }
  return selected;
}

Numbers CaseRunner::Whole() {
  const NpyArray& inputs = golden_.At("whole/inputs", {kAny, kAny});
  const Ids rows = AllRows(inputs.dims[0]);
  const Span positions = {0, inputs.dims[1]};
  const Case whole{"whole", positions.end, std::vector<uint8_t>(rows.size() * static_cast<size_t>(positions.end), 1)};
  if (bundle_.model == nullptr) return Encode(whole, rows)[0]();
  Decoder decoder = Started(whole.name, rows);
  return NumbersOf(Run(decoder, *bundle_.model, whole, inputs, rows, positions), bundle_.model->info().outputs[0]);
}

void CaseRunner::ReadSource(Decoder& decoder, const std::string& name, const Ids& rows) const {
  if (bundle_.encoder == nullptr) return;
  const Manifest& manifest = bundle_.manifest;
  const std::string& source = golden_.At(name + "/source").text;
  for (const Case& some : EncoderCases(bundle_.encoder->info(), manifest.max_source_len, manifest.proof == "reduced")) {
    if (some.name != source) continue;
    decoder.ReadSource(Inputs(some, rows, some.length), MaskOf(some, rows, some.length));
    return;
  }
  Refuse("the golden file names a source \"", source, "\", which is no case");
}

Decoder CaseRunner::Started(const std::string& name, const Ids& rows) const {
  Decoder decoder(bundle_);
  ReadSource(decoder, name, rows);
  decoder.Start(static_cast<int64_t>(rows.size()));
  return decoder;
}

Value CaseRunner::Inputs(const Case& some, const Ids& rows, int64_t length) const {
  const NpyArray& inputs = golden_.At(some.name + "/inputs", {some.rows(), some.length});
  const int64_t row_size = static_cast<int64_t>(inputs.values.size()) / some.rows();  // T, or T x F
  std::vector<double> values;
  for (const int64_t row : rows) {
    const auto begin = inputs.values.begin() + row * row_size;
    values.insert(values.end(), begin, begin + row_size / some.length * length);
  }
  std::vector<int64_t> dims = inputs.dims;
  dims[0] = static_cast<int64_t>(rows.size());
  dims[1] = length;
  const TensorInfo& info = bundle_.encoder->info().inputs[0];
  if (info.IsFloat()) return FloatTensor(info.dtype, dims, {values.begin(), values.end()});
  return HostTensor(DType::kInt64, dims, Ids(values.begin(), values.end()).data());
}

Value CaseRunner::MaskOf(const Case& some, const Ids& rows, int64_t length) {
  const auto num_rows = static_cast<int64_t>(rows.size());
  return HostTensor(DType::kBool, {num_rows, length}, some.Mask(rows, {0, length}).data());
}

Value CaseRunner::Run(Decoder& decoder, const Graph& graph, const Case& some, const NpyArray& tokens, const Ids& rows,
                      Span positions) {
  return OnHost(decoder.Run(graph, RowsOf(some, tokens, rows, positions)));
}

Rows CaseRunner::RowsOf(const Case& some, const NpyArray& tokens, const Ids& rows, Span positions) {
  Rows read{static_cast<int64_t>(rows.size()), positions.size(), {}, some.Mask(rows, positions)};
  for (const int64_t row : rows) {
    const auto begin = tokens.values.begin() + row * some.length;
    read.tokens.insert(read.tokens.end(), begin + positions.first, begin + positions.end);
  }
  return read;
}

Value CaseRunner::StateOf(const Decoder& decoder, const TensorInfo& output) {
  return decoder.State(output.name.substr(sizeof("new_state_") - 1));
}

Numbers CaseRunner::NumbersOf(const Value& value, const TensorInfo& output) {
  const std::vector<int64_t> dims = Dims(value);
  if (dims.empty() || dims.size() != output.dims.size()) {
    Refuse(output.name, " has ", dims.size(), " dimensions, its manifest says ", output.dims.size());
  }
  return {dims, Floats(OnHost(value))};
}

Value CaseRunner::OnHost(const Value& value) {
  const bool on_host = value->GetTensorMemoryInfo().GetDeviceType() == OrtMemoryInfoDeviceType_CPU;
  if (on_host || value->GetTensorTypeAndShapeInfo().GetElementCount() == 0) return value;
  std::vector<int64_t> rows(static_cast<size_t>(Dims(value)[0]));
  std::iota(rows.begin(), rows.end(), int64_t{0});
  const std::vector<Value> values = {value};
  return to_host_.try_emplace(TypeOf(value), bundle_, values, "cpu").first->second.Take(values, rows)[0];
}

}  // namespace seqlab
