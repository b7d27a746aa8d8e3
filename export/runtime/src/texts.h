// What a bundle's tokenizers make of strings, compared with what they made of them at export: seqlab_export.texts.
#ifndef SEQLAB_TEXTS_H_
#define SEQLAB_TEXTS_H_

#include <string>

#include "bundle.h"
#include "golden_file.h"

namespace seqlab {

// How the tokenizer of the folder `place` of a bundle is not what it was, or with `writes` the greedy text is another;
// empty = all is well, or it is one that the runtime does not have.
std::string TextDifference(const std::filesystem::path& folder, const std::string& place, const GoldenFile& golden,
                           bool writes);

// The bytes of an array as a text, and a text in lower-case hexadecimal digits.
std::string BytesOf(const NpyArray& array);
std::string HexOf(const std::string& bytes);

}  // namespace seqlab

#endif  // SEQLAB_TEXTS_H_
