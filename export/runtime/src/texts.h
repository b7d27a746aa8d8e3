// What a bundle's tokenizers make of strings, compared with what they made of them at export: seqlab_export.runner.texts.
#ifndef SEQLAB_TEXTS_H_
#define SEQLAB_TEXTS_H_

#include <string>

#include "bundle.h"
#include "golden_file.h"

namespace seqlab {

// How the tokenizer of the folder `place` of a bundle is not what it was, or the greedy text of the bundle's decoder is
// another; empty = all is well. Of one that the runtime does not have only the files are compared.
std::string TextDifference(const Model::Impl& bundle, const std::string& place, const GoldenFile& golden);

// The bytes of an array as a text, and a text in lower-case hexadecimal digits.
std::string BytesOf(const NpyArray& array);
std::string HexOf(const std::string& bytes);

}  // namespace seqlab

#endif  // SEQLAB_TEXTS_H_
