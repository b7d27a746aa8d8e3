// Strict reading of JSON: every refusal names the place in the file.
#ifndef SEQLAB_JSON_FIELDS_H_
#define SEQLAB_JSON_FIELDS_H_

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace seqlab {

// A value and its place in the file. Each method throws Refusal if the value is of another kind.
class Field {
 public:
  Field(const nlohmann::json& value, std::string place, bool takes_unknown = false)
      : value_(value), place_(std::move(place)), takes_unknown_(takes_unknown) {}

  const std::string& place() const { return place_; }
  bool IsNull() const;
  bool IsString() const;
  // True if it is the same value as another.
  bool Is(const Field& other) const;
  bool Has(const std::string& name) const;
  // True if it is an object with this string in this field.
  bool Says(const std::string& name, const std::string& value) const;

  // The same value, in which objects may have unknown fields, as a newer minor version writes them.
  Field OfNewerMinor() const { return Field(value_, place_, true); }

  // Throws unless it is an object with `names`, perhaps `optional`, and no other fields.
  void MustHaveExactly(std::initializer_list<const char*> names,
                       std::initializer_list<const char*> optional = {}) const;

  // A field of an object; throws if it does not exist.
  Field operator[](const std::string& name) const;

  std::vector<Field> Items() const;
  std::map<std::string, Field> Members() const;
  std::string String() const;
  std::vector<std::string> Strings() const;
  bool Bool() const;
  int64_t Int(int64_t least) const;
  double Number() const;

 private:
  [[noreturn]] void Refused(const std::string& expected) const;

  const nlohmann::json& value_;
  std::string place_;
  bool takes_unknown_;
};

inline constexpr int64_t kMostDepth = 64;

// Returns true if JSON is nested more than kMostDepth levels deep: printing and copying it would overflow the stack.
bool IsTooDeep(std::string_view text);

// A file of JSON.
class Document {
 public:
  // Throws Refusal if the text of the file `name` is not JSON.
  Document(const std::string& text, const std::string& name);
  ~Document();

  Field Root(std::string place) const { return Field(*content_, std::move(place)); }

 private:
  std::unique_ptr<const nlohmann::json> content_;
};

}  // namespace seqlab

#endif  // SEQLAB_JSON_FIELDS_H_
