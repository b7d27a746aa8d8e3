#include "greedy.h"

#include <algorithm>
#include <cmath>

#include "accuracy.h"
#include "decoder.h"
#include "error.h"
#include "proof_constants.h"

namespace seqlab {
namespace {

// The reference: tokens (R, N), and at each position the likeliest tokens and their logits (R, N, K), the best first.
struct Reference {
  const NpyArray &tokens, &likeliest, &logits;
  int64_t rows() const { return tokens.dims[0]; }
  int64_t length() const { return tokens.dims[1]; }
  int64_t kept() const { return likeliest.dims[2]; }
};

Reference ReferenceOf(const GoldenFile& golden, int64_t vocab_size) {
  const NpyArray& tokens = golden.At("greedy/tokens", {kAny, kAny});
  const NpyArray& likeliest = golden.At("greedy/likeliest", {tokens.dims[0], tokens.dims[1], kAny});
  const auto [least, most] = std::minmax_element(likeliest.values.begin(), likeliest.values.end());
  if (likeliest.dims[2] < 2 || *least < 0 || *most >= static_cast<double>(vocab_size)) {
    Refuse("greedy/likeliest of the golden file holds no two tokens of the vocabulary");
  }
  return {tokens, likeliest, golden.At("greedy/logits", likeliest.dims)};
}

// What the runtime writes: the tokens of each row, and the logits from which each was chosen.
struct Trace {
  std::vector<Ids> tokens;
  std::vector<Logits> logits;
};

Trace TraceOf(Decoder& decoder, const std::vector<Ids>& prompts, int64_t length) {
  Trace trace{std::vector<Ids>(prompts.size()), {}};
  for (int64_t step = 0; step < length; ++step) {
    Ids last;
    for (const Ids& row : trace.tokens) last.push_back(row.empty() ? 0 : row.back());
    trace.logits.push_back(step == 0 ? decoder.Prefill(prompts) : decoder.Step(last));
    for (size_t row = 0; row < prompts.size(); ++row) {
      const std::vector<double> scores = trace.logits.back().Doubles(static_cast<int64_t>(row));
      trace.tokens[row].push_back(std::max_element(scores.begin(), scores.end()) - scores.begin());
    }
  }
  return trace;
}

Check JudgedRow(const Reference& reference, const Trace& trace, int64_t row, double torch_error, double limit) {
  const Ids& written = trace.tokens[static_cast<size_t>(row)];
  const int64_t first = row * reference.length();
  int64_t same = 0;
  while (same < reference.length() &&
         written[same] == static_cast<int64_t>(reference.tokens.values[static_cast<size_t>(first + same)])) {
    ++same;
  }
  const auto kept = static_cast<size_t>(reference.kept()), begin = static_cast<size_t>(first) * kept;
  const size_t count = static_cast<size_t>(std::min(same + 1, reference.length())) * kept;
  std::vector<double> ours, errors;
  for (size_t place = 0; place < count; ++place) {
    const auto token = static_cast<size_t>(reference.likeliest.values[begin + place]);
    ours.push_back(trace.logits[place / kept].Row(row)[token]);
  }
  AddErrors(ours, reference.logits.values, begin, errors);
  Check check = Judged("greedy", Join("prompt ", row), errors, torch_error, limit);
  if (same == reference.length()) return check;
  const double* theirs = reference.logits.values.data() + begin + count - kept;
  double largest = 0.0;
  for (size_t place = 0; place < kept; ++place) {
    largest = std::max(largest, std::abs(ours[count - kept + place] - theirs[place]));
  }
  const double margin = theirs[0] - theirs[1];
  check.ok = check.ok && margin < proof::kMarginErrors * largest;
  check.note += Join(check.note.empty() ? "" : "; ", "differs from token ", same, " on, where the float64 margin is ",
                     Scientific(margin), " and the largest logit error ", Scientific(largest));
  return check;
}

}  // namespace

std::vector<Check> CheckGreedy(const Bundle& bundle, const GoldenFile& golden, CaseRunner& runner) {
  const Reference reference = ReferenceOf(golden, *bundle.manifest.vocab_size);
  std::vector<Ids> prompts;
  for (int64_t row = 0; row < reference.rows(); ++row) {
    const std::vector<double>& prompt = golden.At(Join("greedy/prompt_", row), {kAny}).values;
    prompts.emplace_back(prompt.begin(), prompt.end());
  }
  Decoder decoder(bundle);
  runner.ReadSource(decoder, "greedy", AllRows(reference.rows()));
  const Trace trace = TraceOf(decoder, prompts, reference.length());
  const double torch_error = golden.Number("greedy/torch/logits");
  std::vector<Check> checks;
  for (int64_t row = 0; row < reference.rows(); ++row) {
    checks.push_back(JudgedRow(reference, trace, row, torch_error, Limit(torch_error, bundle.manifest.precision)));
  }
  return checks;
}

}  // namespace seqlab
