// JSON that must be exactly as expected: every refusal names the place in the file.
#ifndef SEQLAB_JSON_FIELDS_H_
#define SEQLAB_JSON_FIELDS_H_

#include <cstdint>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace seqlab {

// A value and where it stands. Each method throws Refusal where the value is of another kind.
class Field {
 public:
  Field(const nlohmann::json& value, std::string place) : value_(value), place_(std::move(place)) {}

  const std::string& place() const { return place_; }
  bool IsNull() const { return value_.is_null(); }
  bool IsString() const { return value_.is_string(); }

  // Throws unless it is an object with these fields and no others.
  void MustHaveExactly(std::initializer_list<const char*> names) const;

  // Of an object; throws where there is none.
  Field operator[](const std::string& name) const;

  std::vector<Field> Items() const;
  std::map<std::string, Field> Members() const;
  std::string String() const;
  std::vector<std::string> Strings() const;
  bool Bool() const;
  int64_t Int(int64_t least) const;
  std::optional<int64_t> IntOrNull(int64_t least) const;
  std::optional<std::string> StringOrNull() const;
  std::optional<double> NumberOrNull() const;

 private:
  [[noreturn]] void Refused(const std::string& expected) const;

  const nlohmann::json& value_;
  std::string place_;
};

// Throws Refusal where the text of the file `name` is not JSON.
nlohmann::json ParseJson(const std::string& text, const std::string& name);

}  // namespace seqlab

#endif  // SEQLAB_JSON_FIELDS_H_
