#include <algorithm>

#include "generate.h"

namespace seqlab {

Ids Speculate(Decoder& decoder, const Ids& prompt, const GenerateOptions& options, const OnToken& on_token) {
  const auto begin = static_cast<int64_t>(prompt.size()), ahead = decoder.num_ahead();
  // The model never reads the last new token.
  const int64_t longest = begin + options.max_new_tokens - 1;
  decoder.CheckReadable(prompt, longest);
  decoder.Start(1);
  Ids text = prompt, guesses;
  int64_t read = 0;  // the state has read the first of the text's tokens
  const auto unread = [&](int64_t end) { return Ids(text.begin() + read, text.begin() + end); };
  while (static_cast<int64_t>(text.size()) <= longest) {
    const auto known = static_cast<int64_t>(text.size());
    if (read > 0 && known - read > 2 * (ahead + 1)) {
      decoder.Guess(unread(known - 1), known - read - 2);
      decoder.Keep();
      read = known - 1;
    }
    guesses.resize(static_cast<size_t>(std::min<int64_t>(longest - known, static_cast<int64_t>(guesses.size()))));
    Ids reads = unread(known);
    reads.insert(reads.end(), guesses.begin(), guesses.end());
    const Decoder::Guessed found = decoder.Guess(reads, known - read - 1);
    size_t place = 0;
    for (;; ++place) {
      const auto step = static_cast<int64_t>(text.size()) - begin;
      const int64_t token = Chosen(found.logits.Doubles(static_cast<int64_t>(place)), options, text, step, 0);
      text.push_back(token);
      if (on_token && !on_token(0, token)) RefuseCancelled();
      const bool stops = std::count(options.stop_ids.begin(), options.stop_ids.end(), token) > 0;
      if (stops) return {text.begin() + begin, text.end()};
      if (place == guesses.size() || guesses[place] != token) break;
    }
    if (place == guesses.size()) {  // every guess was right
      decoder.Keep();
      read = known + static_cast<int64_t>(place);
    }
    guesses = found.tokens[place];
  }
  return {text.begin() + begin, text.end()};
}

}  // namespace seqlab
