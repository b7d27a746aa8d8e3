// The loops that write with a decoder: seqlab.decoding's `generate` and `beam_search`, token for token.
#ifndef SEQLAB_GENERATE_H_
#define SEQLAB_GENERATE_H_

#include <string>
#include <string_view>
#include <vector>

#include "decoder.h"

namespace seqlab {

// Continues each prompt. Row r draws the numbers of row r. Throws Refusal where an option is outside its range, the
// texts would be longer than the model reads, or `on_token` cancels.
std::vector<Ids> Generate(Decoder& decoder, const std::vector<Ids>& prompts, const GenerateOptions& options,
                          const OnToken& on_token);

// Continues a text, until the model ends it; of a bundle without a tokenizer both are ids such as "5 6 7", which nothing
// ends. Throws Refusal as above, and where the prompt is none.
std::string Write(Decoder& decoder, std::string_view prompt, GenerateOptions options, const OnText& on_text);

// Continues each prompt in the K best ways that are found (Graves 2012, section 3.2), the best first.
//
// At each step the K best continuations of a prompt's K beams are kept; one that ends with a stop token, and is among the
// K best, is finished. A prompt is done when K are finished, or at max_new_tokens. Of equal scores the earlier beam's and
// the lower token's is better.
std::vector<std::vector<Hypothesis>> BeamSearch(Decoder& decoder, const std::vector<Ids>& prompts,
                                                const BeamOptions& options);

// Throws Refusal where the model cannot read and continue the prompts.
void CheckLengths(const Manifest& manifest, const std::vector<Ids>& prompts, int64_t max_new_tokens);

}  // namespace seqlab

#endif  // SEQLAB_GENERATE_H_
