#include "json_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace seqlab::tools {

using nlohmann::json;

std::string Dumped(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

json LabelsOf(const Classes& classes, const std::vector<std::string>& names) {
  json labels = json::array();
  for (int64_t row = 0; row < classes.rows; ++row) {
    const auto first = classes.probabilities.begin() + row * static_cast<int64_t>(names.size());
    const auto best = std::max_element(first, first + static_cast<int64_t>(names.size()));
    labels.push_back({{"label", names[static_cast<size_t>(best - first)]}, {"probability", *best}});
    if (!classes.words.empty()) labels.back()["word"] = classes.words[static_cast<size_t>(row)];
  }
  return labels;
}

}  // namespace seqlab::tools
