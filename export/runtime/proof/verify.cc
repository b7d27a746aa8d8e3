// The proof of a bundle, its declarations and its values: seqlab_export.runner.verify, check for check.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "accuracy.h"
#include "bundle.h"
#include "case_runner.h"
#include "declared.h"
#include "error.h"
#include "golden.h"
#include "greedy.h"
#include "seqlab/proof.h"

namespace seqlab {
namespace {

// A time limit, which runs while the object lives. When it is over, all runs of the bundle's graphs end.
class TimeLimit {
 public:
  TimeLimit(const Bundle& bundle, double seconds) : seconds_(seconds), thread_([this, &bundle] { Wait(bundle); }) {}
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

  ~TimeLimit() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      done_ = true;
    }
    ends_.notify_all();
    thread_.join();
  }

  // Throws Refusal if the time is over.
  void Check() const {
    if (!over_) return;
    Refuse(StatusCode::kDamagedBundle, "the proof is given up: it did not end within ", seconds_, " seconds");
  }

 private:
  void Wait(const Bundle& bundle) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (ends_.wait_for(lock, std::chrono::duration<double>(std::min(seconds_, 1e9)), [this] { return done_; })) return;
    over_ = true;
    for (const auto* graph : {&bundle.encoder, &bundle.model, &bundle.step}) {
      if (*graph != nullptr) (*graph)->End();
    }
  }

  const double seconds_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool done_ = false;
  std::atomic<bool> over_{false};
  std::thread thread_;  // the last member, since it reads the others
};

class Proof {
 public:
  Proof(const Bundle& bundle, Report& report, const TimeLimit& limit)
      : bundle_(bundle),
        report_(report),
        limit_(limit),
        reduced_(bundle.manifest.proof == "reduced"),
        golden_(bundle.folder / bundle.manifest.golden),
        runner_(bundle, golden_) {
    for (const auto* graph : {&bundle.encoder, &bundle.model, &bundle.step}) {
      if (*graph != nullptr) (*graph)->GiveMemoryBack();
    }
  }

  void CheckAll() {
    CheckDeclared(bundle_, golden_, report_);
    if (!report_.ok()) return;
    if (bundle_.encoder != nullptr) CheckEncoder();
    if (bundle_.model != nullptr) {
      for (const char* form : {"prefill", "chunks", "step"}) CheckDecoder(form);
      CheckLong();
      if (report_.ok()) {
        for (Check& check : CheckGreedy(bundle_, golden_, runner_)) report_.checks.push_back(std::move(check));
      }
    }
    // The divergence of one case, whose logits the golden file has in full.
    if (report_.ok() && golden_.Has("whole/logits")) {
      const int64_t rows = golden_.At("whole/inputs", {kAny, kAny}).dims[0];
      const NpyArray& expected = golden_.At("whole/logits", {rows});
      const std::vector<float> logits = runner_.Whole().values;
      report_.divergence = DivergenceFrom(expected.values, {logits.begin(), logits.end()}, expected.dims.back());
    }
  }

 private:
  void CheckEncoder() {
    const GraphInfo& info = bundle_.encoder->info();
    const auto longest = bundle_.manifest.max_source_len;
    const std::vector<Case> cases = EncoderCases(info, longest, reduced_);
    for (const auto& [batch, found] : Cells(cases, longest, reduced_)) {
      const Case& some = found;
      const std::string cell = Join("batch ", batch, ", ", some.name.substr(std::string("encoder/").size()));
      CheckCell("encoder", cell, info, some, batch, [&](const Ids& rows) { return runner_.Encode(some, rows); });
    }
    const std::vector<int64_t> lengths = OneCallLengths(longest, 1, reduced_);
    std::vector<size_t> most(info.outputs.size(), 0);
    for (const Group& group : Groups(info)) {
      for (const size_t place : group.outputs) most[place] = NumbersOfCall(lengths.size(), group.outputs.size());
    }
    CheckLengths("encoder", "encoder/one call", info, Groups(info), lengths,
                 [&](const Case& text, int64_t length) { return runner_.EncodeInOneCall(text, length, most); });
  }

  void CheckDecoder(const std::string& form) {
    const GraphInfo& info = bundle_.model->info();
    const auto longest = bundle_.manifest.max_seq_len;
    const std::vector<Case> cases = Cases(longest, reduced_);
    for (const auto& [batch, found] : Cells(cases, longest, reduced_)) {
      const Case& some = found;
      const std::string cell = Join("batch ", batch, ", ", some.name);
      CheckCell(form, cell, info, some, batch, [&](const Ids& rows) { return runner_.Decode(form, some, rows); });
    }
  }

  void CheckLong() {
    const Manifest& manifest = bundle_.manifest;
    for (const Case& some : LongCases(manifest.max_seq_len, reduced_)) {
      const auto read = [&]() -> std::vector<std::vector<std::vector<double>>> { return {runner_.DecodeLong(some)}; };
      CheckValues("long", some.name, bundle_.model->info(), some.name, read);
    }
    const GraphInfo& info = bundle_.model->info();
    const std::vector<int64_t> lengths = OneCallLengths(manifest.max_seq_len, manifest.first_call, reduced_);
    const size_t most = NumbersOfCall(lengths.size());
    const std::vector<Group> logits = {Groups(info)[0]};
    CheckLengths("long", "one call", info, logits, lengths, [&](const Case& text, int64_t length) {
      std::vector<std::vector<double>> found(info.outputs.size());
      found[logits[0].outputs[0]] = runner_.DecodeInOneCall(text, length, most);
      return found;
    });
  }

  // Makes one check for each length of a text that is read in one call, and each group of outputs. A decoder's state is
  // checked by the step that follows.
  void CheckLengths(const std::string& kind, const std::string& name, const GraphInfo& info,
                    const std::vector<Group>& groups, const std::vector<int64_t>& lengths,
                    const std::function<std::vector<std::vector<double>>(const Case&, int64_t)>& read) {
    if (!golden_.Has(name + "/" + info.outputs[0].name)) {
      report_.checks.push_back({kind, "in one call", false, "the golden file does not have it"});
      return;
    }
    const Case text{name, lengths.back(), std::vector<uint8_t>(static_cast<size_t>(lengths.back()), 1)};
    std::vector<size_t> begins(info.outputs.size(), 0);
    for (const int64_t length : lengths) {
      const std::string subject = Join("length ", length, " in one call");
      std::vector<std::vector<double>> actual;
      try {
        actual = read(text, length);
      } catch (const std::exception& error) {
        limit_.Check();
        report_.checks.push_back({kind, subject, false, error.what()});
        return;
      }
      limit_.Check();
      for (const Group& group : groups) {
        std::vector<double> errors;
        for (const size_t place : group.outputs) {
          AddErrors(actual[place], golden_.At(name + "/" + info.outputs[place].name).values, begins[place], errors);
          begins[place] += actual[place].size();
        }
        report_.checks.push_back(JudgedOf(kind, subject, name, group, errors));
      }
    }
  }

  Check JudgedOf(const std::string& kind, const std::string& subject, const std::string& name, const Group& group,
                 const std::vector<double>& errors) {
    const double torch_error = golden_.Number(name + "/torch/" + group.name);
    const double limit = group.name == "counters" ? 0.0 : Limit(torch_error, bundle_.manifest.precision);
    return Judged(kind, subject + ", " + group.name, errors, torch_error, limit);
  }

  // Makes one check for each group of outputs of a cell: a case, read `batch` rows at a time.
  void CheckCell(const std::string& kind, const std::string& cell, const GraphInfo& info, const Case& some,
                 int64_t batch, const std::function<std::vector<Output>(const Ids&)>& read) {
    CheckValues(kind, cell, info, some.name, [&] {
      std::vector<std::vector<Output>> parts(info.outputs.size());
      for (const Ids& rows : Batches(some.rows(), batch)) {
        std::vector<Output> found = read(rows);
        for (size_t place = 0; place < found.size(); ++place) parts[place].push_back(std::move(found[place]));
      }
      const std::vector<Ids> passes = Passes(some.rows(), batch);
      std::vector<std::vector<std::vector<double>>> selected(passes.size());
      for (size_t place = 0; place < parts.size(); ++place) {
        std::vector<Numbers> batches;
        for (const Output& output : std::exchange(parts[place], {})) batches.push_back(output());
        const Numbers whole = Concatenated(std::move(batches), 0);
        for (size_t pass = 0; pass < passes.size(); ++pass) {
          const Numbers& taken = passes.size() == 1 ? whole : TakenRows(whole, passes[pass]);
          selected[pass].push_back(Selected(taken, info.outputs[place], some, MostNumbers(info, place)));
        }
      }
      return selected;
    });
  }

  // Makes one check for each group of outputs, from the numbers that `read` selects of each output, once or several
  // times.
  void CheckValues(const std::string& kind, const std::string& cell, const GraphInfo& info, const std::string& name,
                   const std::function<std::vector<std::vector<std::vector<double>>>()>& read) {
    try {
      const auto found = read();
      for (const Group& group : Groups(info)) {
        std::vector<double> errors;
        for (const auto& actual : found) {
          for (const size_t place : group.outputs) {
            AddErrors(actual[place], golden_.At(name + "/" + info.outputs[place].name).values, errors);
          }
        }
        report_.checks.push_back(JudgedOf(kind, cell, name, group, errors));
      }
    } catch (const std::exception& error) {
      report_.checks.push_back({kind, cell, false, error.what()});
    }
    limit_.Check();
  }

  const Bundle& bundle_;
  Report& report_;
  const TimeLimit& limit_;
  const bool reduced_;
  const GoldenFile golden_;
  CaseRunner runner_;
};

}  // namespace

bool Report::ok() const {
  return !checks.empty() && std::all_of(checks.begin(), checks.end(), [](const Check& check) { return check.ok; });
}

static_assert(kProofSeconds == proof::kSeconds, "the public header has another time limit");

Result<Report> Verify(const std::string& folder, const OpenOptions& options, double seconds) {
  return Guarded([&] {
    const Manifest manifest = LoadManifest(folder);
    Report report{options.provider, "", manifest.precision, {}, {}};
    auto found = FindDamage(folder, manifest);
    for (const auto& file : manifest.files) found.try_emplace(file.first, "");
    for (const auto& [name, damage] : found) report.checks.push_back({"files", name, damage.empty(), damage});
    report.onnxruntime = OpenOnnxruntime(options.onnxruntime).version;
    if (!report.ok()) return report;
    const Bundle bundle(folder, options);
    const TimeLimit limit(bundle, seconds);
    try {
      Proof(bundle, report, limit).CheckAll();
    } catch (const Refusal& refusal) {
      limit.Check();
      throw Refusal(refusal.what(), StatusCode::kDamagedBundle);  // all that a proof reads is the bundle's
    } catch (const Ort::Exception&) {
      limit.Check();
      throw;
    }
    return report;
  });
}

}  // namespace seqlab
