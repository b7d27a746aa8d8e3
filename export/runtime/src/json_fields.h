// JSON that must be exactly as expected: every refusal names the place in the file.
#ifndef SEQLAB_JSON_FIELDS_H_
#define SEQLAB_JSON_FIELDS_H_

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace seqlab {

// A value and where it stands. Each method throws Refusal where the value is of another kind.
class Field {
 public:
  Field(const nlohmann::json& value, std::string place) : value_(value), place_(std::move(place)) {}

  const std::string& place() const { return place_; }
  bool IsNull() const;
  bool IsString() const;
  // Whether it is the same value as another.
  bool Is(const Field& other) const;
  // Whether it is an object with this string in this field.
  bool Says(const std::string& name, const std::string& value) const;

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

// A file of JSON.
class Document {
 public:
  // Throws Refusal where the text of the file `name` is not JSON.
  Document(const std::string& text, const std::string& name);
  ~Document();

  Field Root(std::string place) const { return Field(*content_, std::move(place)); }

 private:
  std::unique_ptr<const nlohmann::json> content_;
};

}  // namespace seqlab

#endif  // SEQLAB_JSON_FIELDS_H_
