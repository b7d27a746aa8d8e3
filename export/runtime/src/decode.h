// The decoding loops: seqlab.decoding's `generate` and `beam_search`, token for token.
#ifndef SEQLAB_DECODE_H_
#define SEQLAB_DECODE_H_

#include <vector>

#include "decoder.h"

namespace seqlab {

// Continues each prompt. Row r draws the numbers of row r. Throws Refusal where an option is outside its range, the
// texts would be longer than the model reads, or `on_token` cancels.
std::vector<Ids> Generate(Decoder& decoder, const Manifest& manifest, const std::vector<Ids>& prompts,
                          const GenerateOptions& options, const OnToken& on_token);

// Continues each prompt in the K best ways that are found (Graves 2012, section 3.2), the best first.
//
// At each step the K best continuations of a prompt's K beams are kept; one that ends with a stop token, and is among the
// K best, is finished. A prompt is done when K are finished, or at max_new_tokens. Of equal scores the earlier beam's and
// the lower token's is better.
std::vector<std::vector<Hypothesis>> BeamSearch(Decoder& decoder, const Manifest& manifest,
                                                const std::vector<Ids>& prompts, const BeamOptions& options);

// What a callback's false becomes.
[[noreturn]] void RefuseCancelled();

// Throws Refusal where the model cannot read and continue the prompts.
void CheckLengths(const Manifest& manifest, const std::vector<Ids>& prompts, int64_t max_new_tokens);

// The logits of a row, in float64.
std::vector<double> Row(const Logits& logits, int64_t row);

}  // namespace seqlab

#endif  // SEQLAB_DECODE_H_
