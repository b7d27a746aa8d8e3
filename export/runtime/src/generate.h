// The decoding loops: `generate` and `beam_search` of seqlab.decoding, token for token.
#ifndef SEQLAB_GENERATE_H_
#define SEQLAB_GENERATE_H_

#include <string>
#include <string_view>
#include <vector>

#include "decoder.h"

namespace seqlab {

// Continues each prompt. Row r draws the random numbers of row r. Throws Refusal if an option is out of range, the
// texts would be longer than the model reads, or `on_token` cancels.
std::vector<Ids> Generate(Decoder& decoder, const std::vector<Ids>& prompts, const GenerateOptions& options,
                          const OnToken& on_token);

// Continues a prompt as `Generate` does, where the model's own heads guess several tokens and one pass checks them:
// `speculate` of seqlab.decoding. Throws Refusal if `on_token` cancels, or an id is outside the vocabulary.
Ids Speculate(Decoder& decoder, const Ids& prompt, const GenerateOptions& options, const OnToken& on_token);

// Chooses the token at place `step` of a row from logits (V,) that follow `text`.
int64_t Chosen(std::vector<double> logits, const GenerateOptions& options, const Ids& text, int64_t step, int64_t row);

[[noreturn]] void RefuseCancelled();

// Returns the ids of a prompt; see Model::EncodePrompt. Throws Refusal if the tokenizer refuses the text, or it is not
// ids.
Ids EncodePrompt(const Bundle& bundle, std::string_view text);

// Continues a text until one of the manifest's stop tokens. Without a tokenizer both texts are ids, such as "5 6 7".
// Throws Refusal as `Generate`, and if the prompt is not a text of the tokenizer, or not ids.
std::string Write(Decoder& decoder, std::string_view prompt, GenerateOptions options, const OnText& on_text);

// Returns the K best continuations that are found of each prompt, the best first (Graves 2012, section 3.2).
//
// At each step the K best continuations of a prompt's K beams are kept; one that ends with a stop token, and is among
// the K best, is finished. A prompt is done when K are finished and no beam is ahead of all of them, or at
// max_new_tokens. Ties go to the earlier beam, then to the lower token.
std::vector<std::vector<Hypothesis>> BeamSearch(Decoder& decoder, const std::vector<Ids>& prompts,
                                                const BeamOptions& options);

// Throws Refusal if the prompts and their new tokens need more positions than the model has.
void CheckLengths(const Manifest& manifest, const std::vector<Ids>& prompts, int64_t max_new_tokens);

}  // namespace seqlab

#endif  // SEQLAB_GENERATE_H_
