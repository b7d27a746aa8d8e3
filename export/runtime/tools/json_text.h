// JSON of results, for the command line and for HTTP.
#ifndef SEQLAB_TOOLS_JSON_TEXT_H_
#define SEQLAB_TOOLS_JSON_TEXT_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "seqlab/runtime.h"

namespace seqlab::tools {

// Formats JSON; bytes that are not UTF-8 become U+FFFD.
std::string Dumped(const nlohmann::json& value, int indent = -1);

// Lists the likeliest label of a text, or of each of its words, with its probability and the word.
nlohmann::json LabelsOf(const Classes& classes, const std::vector<std::string>& names);

}  // namespace seqlab::tools

#endif  // SEQLAB_TOOLS_JSON_TEXT_H_
