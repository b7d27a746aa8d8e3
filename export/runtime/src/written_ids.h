// Ids written as numbers: the text of a model that has no tokenizer.
#ifndef SEQLAB_WRITTEN_IDS_H_
#define SEQLAB_WRITTEN_IDS_H_

#include <string>
#include <string_view>

#include "decode.h"

namespace seqlab {

// The ids that a text writes, separated by spaces. Throws Refusal where there is none, or something else.
Ids ReadIds(std::string_view text);

// What the model writes after a prompt of ids; none of them ends a text.
std::string WriteIds(Decoder& decoder, const Manifest& manifest, std::string_view prompt, const GenerateOptions& options,
                     const OnText& on_text);

}  // namespace seqlab

#endif  // SEQLAB_WRITTEN_IDS_H_
