#include "written_ids.h"

#include <algorithm>

#include "error.h"
#include "utf8.h"

namespace seqlab {
namespace {

constexpr size_t kMostDigits = 9;

bool IsId(std::string_view word) {
  return word.size() <= kMostDigits && std::all_of(word.begin(), word.end(), [](char c) { return '0' <= c && c <= '9'; });
}

}  // namespace

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

std::string WriteIds(Decoder& decoder, const Manifest& manifest, std::string_view prompt, const GenerateOptions& options,
                     const OnText& on_text) {
  GenerateOptions endless = options;
  endless.stop_ids.clear();
  std::string text;
  Generate(decoder, manifest, {ReadIds(prompt)}, endless, [&](int64_t, int64_t token) {
    const std::string piece = Join(text.empty() ? "" : " ", token);
    text += piece;
    return on_text == nullptr || on_text(piece);
  });
  return text;
}

}  // namespace seqlab
