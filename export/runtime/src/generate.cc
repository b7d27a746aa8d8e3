#include "generate.h"

#include <algorithm>

#include "error.h"
#include "sampling.h"
#include "utf8.h"

namespace seqlab {
namespace {

bool IsId(std::string_view word) {
  constexpr size_t kMostDigits = 9;
  return word.size() <= kMostDigits &&
         std::all_of(word.begin(), word.end(), [](char c) { return '0' <= c && c <= '9'; });
}

// Reads ids that are separated by whitespace.
Ids ReadIds(std::string_view text) {
  const std::vector<std::string_view> words = Words(text, false);
  const auto wrong = std::find_if_not(words.begin(), words.end(), IsId);
  if (words.empty() || wrong != words.end()) {
    const std::string got = words.empty() ? "none" : Join('"', wrong->substr(0, 60), '"');
    Refuse("this model has no tokenizer, and a prompt is ids, such as \"5 6 7\"; got ", got);
  }
  Ids ids;
  for (const std::string_view word : words) ids.push_back(std::stoll(std::string(word)));
  return ids;
}

}  // namespace

int64_t Chosen(std::vector<double> logits, const GenerateOptions& options, const Ids& text, int64_t step, int64_t row) {
  Apply(options.repetition, text, logits);
  return Choose(logits, options.sampling, step, row);
}

void RefuseCancelled() { Refuse(StatusCode::kCancelled, "the callback has cancelled what was being written"); }

void CheckLengths(const Manifest& manifest, const std::vector<Ids>& prompts, int64_t max_new_tokens) {
  if (max_new_tokens < 1) Refuse("max_new_tokens must be at least 1, got ", max_new_tokens);
  int64_t longest = 0;
  for (const Ids& prompt : prompts) longest = std::max(longest, static_cast<int64_t>(prompt.size()));
  if (!manifest.max_seq_len) return;
  // The model never reads the last new token.
  if (max_new_tokens - 1 > *manifest.max_seq_len - longest) {
    Refuse("a prompt of ", longest, " tokens and ", max_new_tokens,
           " new ones need more positions than the model has, ", *manifest.max_seq_len,
           "; shorten the prompt or ask for fewer tokens");
  }
}

std::vector<Ids> Generate(Decoder& decoder, const std::vector<Ids>& prompts, const GenerateOptions& options,
                          const OnToken& on_token) {
  CheckOptions(options.sampling);
  CheckOptions(options.repetition);
  CheckLengths(decoder.bundle().manifest, prompts, options.max_new_tokens);
  if (prompts.size() == 1 && !prompts[0].empty() && decoder.num_ahead() > 0) {
    return {Speculate(decoder, prompts[0], options, on_token)};
  }
  Logits logits = decoder.Prefill(prompts);
  const auto num_rows = static_cast<int64_t>(prompts.size());
  std::vector<Ids> texts = prompts, chosen(prompts.size());
  std::vector<bool> running(prompts.size(), true);
  const bool takes_largest = options.sampling.temperature == 0 && IsFree(options.repetition);
  for (int64_t step = 0; step < options.max_new_tokens; ++step) {
    // A row that has ended is fed token 0 until the others end; its logits are not read.
    Ids last(prompts.size(), 0);
    bool any = false;
    for (int64_t row = 0; row < num_rows; ++row) {
      if (!running[row]) continue;
      const int64_t token = takes_largest ? ChooseLargest(logits.Row(row), logits.vocab_size)
                                          : Chosen(logits.Doubles(row), options, texts[row], step, row);
      texts[row].push_back(token);
      chosen[row].push_back(token);
      if (on_token && !on_token(row, token)) RefuseCancelled();
      const bool stops = std::count(options.stop_ids.begin(), options.stop_ids.end(), token) > 0;
      running[row] = !stops;
      last[row] = stops ? 0 : token;
      any = any || !stops;
    }
    if (!any || step + 1 == options.max_new_tokens) break;
    logits = decoder.Step(last);
  }
  return chosen;
}

Ids EncodePrompt(const Bundle& bundle, std::string_view text) {
  if (!bundle.manifest.tokenizer) return ReadIds(text);
  const Tokenizer& tokenizer = bundle.tokenizer.get();
  Ids ids = tokenizer.Encode(text);
  if (ids.empty() && tokenizer.bos_id() < 0) {
    Refuse("the prompt is empty, and no token starts a document of this model; give a prompt");
  }
  // An empty prompt starts a document.
  return ids.empty() ? Ids{tokenizer.bos_id()} : ids;
}

std::string Write(Decoder& decoder, std::string_view prompt, GenerateOptions options, const OnText& on_text) {
  std::string text;
  const auto show = [&](const std::string& piece) {
    text += piece;
    return on_text == nullptr || piece.empty() || on_text(piece);
  };
  options.stop_ids = decoder.bundle().manifest.stop_ids;
  const Ids ids = EncodePrompt(decoder.bundle(), prompt);
  if (!decoder.bundle().manifest.tokenizer) {
    Generate(decoder, {ids}, options,
             [&](int64_t, int64_t token) { return show(Join(text.empty() ? "" : " ", token)); });
    return text;
  }
  const Tokenizer& tokenizer = decoder.bundle().tokenizer.get();
  TextStream stream(tokenizer);
  Generate(decoder, {ids}, options, [&](int64_t, int64_t token) { return show(stream.Push(token)); });
  if (!show(stream.Finish())) RefuseCancelled();
  return text;
}

}  // namespace seqlab
