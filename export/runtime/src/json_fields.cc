#include "json_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "error.h"
#include "manifest_fields.h"

namespace seqlab {
namespace {

using nlohmann::json;

// A value for an error message, valid UTF-8 even if its strings are not.
std::string Shown(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 60) + "..." : text;
}

}  // namespace

void Field::Refused(const std::string& expected) const {
  Refuse(place_, " must be ", expected, ", got ", Shown(value_));
}

bool Field::IsNull() const { return value_.is_null(); }

bool Field::Is(const Field& other) const { return value_.dump() == other.value_.dump(); }  // 1 is not 1.0

bool Field::IsString() const { return value_.is_string(); }

bool Field::Has(const std::string& name) const { return value_.contains(name); }

bool Field::Says(const std::string& name, const std::string& value) const {
  return value_.is_object() && value_.contains(name) && value_[name] == value;
}

void Field::MustHaveExactly(std::initializer_list<const char*> names,
                            std::initializer_list<const char*> optional) const {
  if (!value_.is_object()) Refused("an object with " + Listed(names));
  std::vector<std::string> missing, unknown;
  for (const char* name : names) {
    if (!value_.contains(name)) missing.push_back(name);
  }
  if (!missing.empty()) Refuse(place_, " lacks ", Listed(missing));
  for (const auto& item : value_.items()) {
    const auto has = [&](const auto& known) {
      return std::find(known.begin(), known.end(), item.key()) != known.end();
    };
    if (!takes_unknown_ && !has(names) && !has(optional)) unknown.push_back(Shown(item.key()));
  }
  if (!unknown.empty()) Refuse(place_, " has ", Listed(unknown), ", which nothing here knows");
}

Field Field::operator[](const std::string& name) const {
  if (!value_.is_object()) Refused("an object");
  if (!value_.contains(name)) Refuse(place_, " lacks ", name);
  return Field(value_[name], place_ + "." + name, takes_unknown_);
}

std::vector<Field> Field::Items() const {
  if (!value_.is_array()) Refused("a list");
  std::vector<Field> items;
  for (const json& item : value_) {
    items.emplace_back(item, Join(place_, "[", items.size(), "]"), takes_unknown_);
  }
  return items;
}

std::map<std::string, Field> Field::Members() const {
  if (!value_.is_object()) Refused("an object");
  std::map<std::string, Field> members;
  for (const auto& item : value_.items()) {
    members.emplace(item.key(), Field(item.value(), place_ + "." + item.key(), takes_unknown_));
  }
  return members;
}

std::string Field::String() const {
  if (!value_.is_string()) Refused("a string");
  return value_.get<std::string>();
}

std::vector<std::string> Field::Strings() const {
  std::vector<std::string> strings;
  for (const Field& item : Items()) strings.push_back(item.String());
  return strings;
}

bool Field::Bool() const {
  if (!value_.is_boolean()) Refused("true or false");
  return value_.get<bool>();
}

int64_t Field::Int(int64_t least) const {
  // Larger sizes are implausible on any machine.
  constexpr int64_t kMost = int64_t{1} << kMostNumberBits;
  const bool fits =
      value_.is_number_unsigned() ? value_.get<uint64_t>() <= uint64_t{kMost} : value_.is_number_integer();
  if (!fits || value_.get<int64_t>() < least) Refused(Join("a whole number from ", least, " to 2^", kMostNumberBits));
  return value_.get<int64_t>();
}

double Field::Number() const {
  if (!value_.is_number()) Refused("a number");
  return value_.get<double>();
}

bool IsTooDeep(std::string_view text) {
  int64_t depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t place = 0; place < text.size(); ++place) {
    const char c = text[place];
    if (in_string && c == '\\') {
      ++place;
    } else if (c == '"') {
      in_string = !in_string;
    } else if (!in_string && (c == '[' || c == '{')) {
      deepest = std::max(deepest, ++depth);
    } else if (!in_string && (c == ']' || c == '}')) {
      --depth;
    }
  }
  return deepest > kMostDepth;
}

Document::Document(const std::string& text, const std::string& name) {
  if (text.rfind("\xEF\xBB\xBF", 0) == 0) Refuse(name, " is not JSON, at byte 1: it begins with a byte order mark");
  if (IsTooDeep(text)) Refuse(name, " is nested more than ", kMostDepth, " levels deep");
  try {
    content_ = std::make_unique<const json>(json::parse(text));
  } catch (const json::parse_error& error) {
    Refuse(name, " is not JSON, at byte ", error.byte);
  } catch (const json::out_of_range&) {
    Refuse(name, " has a number that is too large for float64");
  }
}

Document::~Document() = default;

}  // namespace seqlab
