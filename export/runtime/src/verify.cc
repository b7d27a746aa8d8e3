// Proves a bundle: what it declares, and its values against its golden file, check for check as seqlab_export.runner.verify.

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "bundle.h"
#include "cases.h"
#include "decode.h"
#include "decoder.h"
#include "declared.h"
#include "divergence.h"
#include "error.h"
#include "golden_file.h"
#include "row_selection.h"

namespace seqlab {
namespace {

constexpr int64_t kBatchSizes[] = {1, 2, 9};

// Numbers of a golden file or of a graph, read for some rows of a case: one for each output.
using ReadRows = std::function<std::vector<Numbers>(int64_t first, int64_t count)>;

class Proof {
 public:
  Proof(const Model::Impl& bundle, Report& report)
      : bundle_(bundle), report_(report), host_copies_(bundle), golden_(bundle.folder / bundle.manifest.golden) {}

  void CheckAll() {
    CheckDeclared(bundle_, golden_, report_);
    if (!report_.ok()) return;
    if (bundle_.encoder != nullptr) CheckEncoder();
    if (bundle_.model != nullptr) {
      for (const char* form : {"prefill", "chunks", "step"}) CheckDecoder(form);
      CheckLong();
      if (report_.ok()) CheckGreedy();
    }
    if (report_.ok() && golden_.Has("whole/logits")) MeasureDivergence();  // of one choice
  }

 private:
  void CheckEncoder() {
    const GraphInfo& info = bundle_.encoder->info();
    const std::vector<Case> cases = EncoderCases(info, bundle_.manifest.max_source_len);
    for (const int64_t batch : kBatchSizes) {
      for (const Case& some : cases) {
        const std::string cell = Join("batch ", batch, ", ", some.name.substr(std::string("encoder/").size()));
        CheckValues("encoder", cell, info, some, batch, [&](int64_t first, int64_t count) {
          std::vector<Numbers> found;
          for (const Value& output : Encode(some, first, count)) found.push_back(NumbersOf(output));
          return found;
        });
      }
    }
  }

  void CheckDecoder(const std::string& form) {
    const GraphInfo& info = bundle_.model->info();
    const std::vector<Case> cases = Cases(bundle_.manifest.max_seq_len);
    for (const int64_t batch : kBatchSizes) {
      for (const Case& some : cases) {
        CheckValues(form, Join("batch ", batch, ", ", some.name), info, some, batch,
                    [&](int64_t first, int64_t count) { return Decode(form, some, first, count); });
      }
    }
  }

  void CheckLong() {
    const GraphInfo& info = bundle_.model->info();
    for (const Case& some : LongCases(bundle_.manifest.max_seq_len)) {
      CheckSelected("long", some.name, info, some.name, [&] { return DecodeLong(some); });
    }
  }

  // Greedy text should be the reference's, or first differ where its two best logits are closer than twice the error of
  // the logits there.
  void CheckGreedy() {
    const NpyArray& tokens = golden_.At("greedy/tokens", {kAny, kAny});
    const int64_t num_rows = tokens.dims[0], length = tokens.dims[1], vocab_size = *bundle_.manifest.vocab_size;
    const NpyArray& likeliest = golden_.At("greedy/likeliest", {num_rows, length, kAny});
    const int64_t kept = likeliest.dims[2];
    const NpyArray& logits = golden_.At("greedy/logits", {num_rows, length, kept});
    const auto [least, most] = std::minmax_element(likeliest.values.begin(), likeliest.values.end());
    if (kept < 2 || *least < 0 || *most >= static_cast<double>(vocab_size)) {
      Refuse("greedy/likeliest of the golden file holds no two tokens of the vocabulary");
    }
    std::vector<Ids> prompts;
    for (int64_t row = 0; row < num_rows; ++row) {
      const std::vector<double>& prompt = golden_.At(Join("greedy/prompt_", row), {kAny}).values;
      prompts.emplace_back(prompt.begin(), prompt.end());
    }
    Decoder decoder(bundle_);
    StartFrom(decoder, "greedy", 0, num_rows);
    std::vector<Logits> steps;
    std::vector<Ids> found(prompts.size());
    for (int64_t step = 0; step < length; ++step) {
      Ids last;
      for (const Ids& row : found) last.push_back(row.empty() ? 0 : row.back());
      steps.push_back(step == 0 ? decoder.Prefill(prompts) : decoder.Step(last));
      for (int64_t row = 0; row < num_rows; ++row) {
        const std::vector<double> scores = Row(steps.back(), row);
        found[row].push_back(std::max_element(scores.begin(), scores.end()) - scores.begin());
      }
    }
    for (int64_t row = 0; row < num_rows; ++row) {
      Check check{"greedy", Join("prompt ", row), true, ""};
      int64_t step = 0;
      while (step < length && found[row][step] == static_cast<int64_t>(tokens.values[row * length + step])) ++step;
      if (step < length) {
        const size_t begin = static_cast<size_t>((row * length + step) * kept);
        const double* reference = logits.values.data() + begin;
        const std::vector<double> ours = Row(steps[step], row);
        double largest = 0.0;
        for (int64_t place = 0; place < kept; ++place) {
          const auto token = static_cast<size_t>(likeliest.values[begin + place]);
          largest = std::max(largest, std::abs(ours[token] - reference[place]));
        }
        const double margin = reference[0] - reference[1];
        check.ok = margin < 2 * largest;
        check.note = Join("differs from token ", step, " on, where the float64 margin is ", Scientific(margin),
                          " and the largest logit error ", Scientific(largest));
      }
      report_.checks.push_back(check);
    }
  }

  void MeasureDivergence() {
    const NpyArray& inputs = golden_.At("whole/inputs", {kAny, kAny});
    const int64_t rows = inputs.dims[0], length = inputs.dims[1];
    const NpyArray& expected = golden_.At("whole/logits", {rows});
    const Case whole{"whole", length, std::vector<uint8_t>(static_cast<size_t>(rows * length), 1)};
    Value logits;
    if (bundle_.model == nullptr) {
      logits = Encode(whole, 0, rows)[0];
    } else {
      Decoder decoder(bundle_);
      StartFrom(decoder, "whole", 0, rows);
      decoder.Start(rows);
      logits = decoder.Run(*bundle_.model, {rows, length, {inputs.values.begin(), inputs.values.end()}, whole.mask});
    }
    report_.divergence = DivergenceFrom(expected.values, Doubles(logits), expected.dims.back());
  }

  Numbers NumbersOf(const Value& value) { return {Dims(value), Doubles(host_copies_.Of(value))}; }

  // The encoder's outputs of these rows of a case's inputs.
  std::vector<Value> Encode(const Case& some, int64_t first, int64_t count) const {
    return bundle_.Encode(Inputs(some, first, count), MaskOf(some, first, count, 0, some.length));
  }

  Value Inputs(const Case& some, int64_t first, int64_t count) const {
    const NpyArray& inputs = golden_.At(some.name + "/inputs", {some.rows(), some.length});
    const int64_t row_size = static_cast<int64_t>(inputs.values.size()) / some.rows();
    const auto begin = inputs.values.begin() + first * row_size;
    std::vector<int64_t> dims = inputs.dims;
    dims[0] = count;
    const TensorInfo& info = bundle_.encoder->info().inputs[0];
    if (info.IsFloat()) return FloatTensor(info.dtype, dims, {begin, begin + count * row_size});
    const Ids tokens(begin, begin + count * row_size);
    return HostTensor(DType::kInt64, dims, tokens.data());
  }

  static std::vector<uint8_t> Columns(const Case& some, int64_t first, int64_t count, int64_t start, int64_t end) {
    std::vector<uint8_t> mask;
    for (int64_t row = first; row < first + count; ++row) {
      const auto begin = some.mask.begin() + row * some.length;
      mask.insert(mask.end(), begin + start, begin + end);
    }
    return mask;
  }

  static Value MaskOf(const Case& some, int64_t first, int64_t count, int64_t start, int64_t end) {
    return HostTensor(DType::kBool, {count, end - start}, Columns(some, first, count, start, end).data());
  }

  // Reads these rows of the source of a case, where there is one.
  void StartFrom(Decoder& decoder, const std::string& name, int64_t first, int64_t count) const {
    if (bundle_.encoder == nullptr) return;
    const std::string& source = golden_.At(name + "/source").text;
    for (const Case& some : EncoderCases(bundle_.encoder->info(), bundle_.manifest.max_source_len)) {
      if (some.name != source) continue;
      decoder.ReadSource(Inputs(some, first, count), MaskOf(some, first, count, 0, some.length));
      return;
    }
    Refuse("the golden file names a source \"", source, "\", which is no case");
  }

  std::vector<Numbers> Decode(const std::string& form, const Case& some, int64_t first, int64_t count) {
    const NpyArray& golden = golden_.At(some.name + "/tokens", {some.rows(), some.length});
    Decoder decoder(bundle_);
    StartFrom(decoder, some.name, first, count);
    decoder.Start(count);
    std::vector<Numbers> logits;
    for (const auto& [start, end] : Calls(form, some, bundle_.manifest.first_call)) {
      const bool steps = form == "step" && end - start == 1;
      logits.push_back(Read(decoder, steps, golden, some, first, count, start, end));
    }
    std::vector<Numbers> outputs;
    for (const TensorInfo& output : bundle_.model->info().outputs) {
      outputs.push_back(output.name == "logits" ? Concatenated(logits, 1) : StateOf(decoder, output));
    }
    return outputs;
  }

  // What counts of each output after reading a long text. Of the logits of each call a part is taken: they are many.
  std::vector<std::vector<double>> DecodeLong(const Case& some) {
    const NpyArray& golden = golden_.At(some.name + "/tokens", {some.rows(), some.length});
    Decoder decoder(bundle_);
    StartFrom(decoder, some.name, 0, some.rows());
    decoder.Start(some.rows());
    const GraphInfo& info = bundle_.model->info();
    const auto calls = Calls("long", some, bundle_.manifest.first_call);
    std::vector<double> logits;
    for (const auto& [start, end] : calls) {
      const Case part{"", end - start, Columns(some, 0, some.rows(), start, end)};
      const Numbers found = Read(decoder, end - start == 1, golden, some, 0, some.rows(), start, end);
      const std::vector<double> taken = Selected(found, info.outputs[0], part, kMostNumbers / calls.size());
      logits.insert(logits.end(), taken.begin(), taken.end());
    }
    std::vector<std::vector<double>> selected(info.outputs.size());
    for (size_t place = 0; place < info.outputs.size(); ++place) {
      const TensorInfo& output = info.outputs[place];
      selected[place] = output.name == "logits" ? logits : Selected(StateOf(decoder, output), output, some, MostNumbers(info, place));
    }
    return selected;
  }

  // The logits of these rows and columns of a case's tokens.
  Numbers Read(Decoder& decoder, bool steps, const NpyArray& golden, const Case& some, int64_t first, int64_t count,
               int64_t start, int64_t end) {
    Rows rows{count, end - start, {}, Columns(some, first, count, start, end)};
    for (int64_t row = first; row < first + count; ++row) {
      const auto begin = golden.values.begin() + row * some.length;
      rows.tokens.insert(rows.tokens.end(), begin + start, begin + end);
    }
    return NumbersOf(decoder.Run(steps ? *bundle_.step : *bundle_.model, rows));
  }

  Numbers StateOf(const Decoder& decoder, const TensorInfo& output) {
    return NumbersOf(decoder.State(output.name.substr(sizeof("new_state_") - 1)));
  }

  // One check for each group of outputs of a cell: a case, read so many rows at a time.
  void CheckValues(const std::string& kind, const std::string& cell, const GraphInfo& info, const Case& some,
                   int64_t batch, const ReadRows& read) {
    CheckSelected(kind, cell, info, some.name, [&] {
      std::vector<std::vector<Numbers>> parts(info.outputs.size());
      for (int64_t first = 0; first < some.rows(); first += batch) {
        std::vector<Numbers> found = read(first, std::min(batch, some.rows() - first));
        for (size_t place = 0; place < found.size(); ++place) parts[place].push_back(std::move(found[place]));
      }
      std::vector<std::vector<double>> selected;
      for (size_t place = 0; place < parts.size(); ++place) {
        const Numbers whole = Concatenated(std::exchange(parts[place], {}), 0);
        selected.push_back(Selected(whole, info.outputs[place], some, MostNumbers(info, place)));
      }
      return selected;
    });
  }

  // The same of what `read` takes of each output, in a case of this name.
  void CheckSelected(const std::string& kind, const std::string& cell, const GraphInfo& info, const std::string& name,
                     const std::function<std::vector<std::vector<double>>()>& read) {
    try {
      const std::vector<std::vector<double>> actual = read();
      for (const Group& group : Groups(info)) {
        std::vector<double> errors;
        for (const size_t place : group.outputs) {
          AddErrors(actual[place], golden_.At(name + "/" + info.outputs[place].name).values, errors);
        }
        Judge(kind, cell + ", " + group.name, errors, golden_.At(name + "/torch/" + group.name).values.at(0));
      }
    } catch (const std::exception& error) {
      report_.checks.push_back({kind, cell, false, error.what()});
    }
  }

  void Judge(const std::string& kind, const std::string& subject, const std::vector<double>& errors, double torch_error) {
    const bool exact = subject.size() > 8 && subject.substr(subject.size() - 8) == "counters";
    const double found = Rms(errors), most = exact ? 0.0 : Limit(torch_error, bundle_.manifest.precision);
    double largest = 0.0;
    for (const double error : errors) largest = std::isnan(error) ? error : std::max(largest, std::abs(error));
    const std::string why = Join("RMS error ", Scientific(found), ", more than ", Scientific(most));
    report_.checks.push_back({kind, subject, found <= most, found <= most ? "" : why, Errors{found, torch_error, most, largest}});
  }

  const Model::Impl& bundle_;
  Report& report_;
  HostCopies host_copies_;
  const GoldenFile golden_;
};

}  // namespace

bool Report::ok() const {
  return !checks.empty() && std::all_of(checks.begin(), checks.end(), [](const Check& check) { return check.ok; });
}

Result<Report> Verify(const std::string& folder, const OpenOptions& options) {
  return Guarded([&] {
    const Manifest manifest = LoadManifest(folder);
    Report report{options.provider, "", manifest.precision, {}, {}};
    auto found = FindDamage(folder, manifest);
    for (const auto& file : manifest.files) found.try_emplace(file.first, "");
    for (const auto& [name, damage] : found) report.checks.push_back({"files", name, damage.empty(), damage});
    report.onnxruntime = OpenOnnxruntime(options.onnxruntime).version;
    if (!report.ok()) return report;
    const Model::Impl bundle(folder, options);
    try {
      Proof(bundle, report).CheckAll();
    } catch (const Refusal& refusal) {
      throw Refusal(refusal.what(), StatusCode::kDamagedBundle);  // All that a proof reads is the bundle's.
    }
    return report;
  });
}

}  // namespace seqlab
