// Reads and writes JSON: checkpoint headers, foreign configurations and tokenizers, `--json` output. Texts
// are read by nlohmann's library, which json.cpp alone includes, and strictly: RFC 8259 and nothing more,
// valid UTF-8, no duplicate names, no lone surrogates, bounded depth and size. Input may be hostile: memory
// stays proportional to the text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "prun/error.hpp"
#include "prun/json_writer.hpp"

namespace prun {

class JsonValue;
struct JsonMember;
using JsonArray = std::vector<JsonValue>;

// Holds members in the order of the text; names differ from each other.
class JsonObject {
 public:
  JsonObject() = default;
  explicit JsonObject(std::vector<JsonMember> members);

  const std::vector<JsonMember>& members() const { return members_; }
  // Returns a member, or nullptr if there is none.
  const JsonValue* find(std::string_view name) const;
  // Returns the position of a member whose name came before, or members().size().
  std::size_t first_duplicate() const;

 private:
  std::vector<JsonMember> members_;
  std::vector<std::uint32_t> by_name_;  // positions in members_, sorted by name, then position
};

// Lists kinds in the order of JsonValue's variant: signed integers wherever they fit, unsigned_integer above
// INT64_MAX.
enum class JsonKind { null, boolean, integer, unsigned_integer, real, string, array, object };

// Holds one value. The as_ functions throw bad_input if the value is of another kind or does not fit.
class JsonValue {
 public:
  using Storage = std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string,
                               JsonArray, JsonObject>;

  JsonValue() = default;
  // Takes a T, which is exactly one of the alternatives of Storage.
  template <class T>
  explicit JsonValue(T value) : storage_(std::in_place_type<T>, std::move(value)) {}

  JsonKind kind() const { return static_cast<JsonKind>(storage_.index()); }
  bool is_null() const { return kind() == JsonKind::null; }
  bool is_string() const { return kind() == JsonKind::string; }
  bool is_array() const { return kind() == JsonKind::array; }
  bool is_object() const { return kind() == JsonKind::object; }
  bool is_integer() const { return kind() == JsonKind::integer || kind() == JsonKind::unsigned_integer; }

  bool as_bool() const;
  std::int64_t as_int64() const;    // integers only, exact
  std::uint64_t as_uint64() const;  // integers only, exact
  double as_double() const;         // any number; integers beyond 2^53 are rounded
  const std::string& as_string() const;
  const JsonArray& as_array() const;
  const JsonObject& as_object() const;
  // Returns a member of an object; throws not_found if it is missing.
  const JsonValue& at(std::string_view name) const;
  // Returns a member of an object, or nullptr if it is missing.
  const JsonValue* find(std::string_view name) const { return as_object().find(name); }

 private:
  Storage storage_;
};

struct JsonMember {
  std::string name;
  JsonValue value;
};

struct JsonLimits {
  std::size_t bytes = std::size_t{128} << 20;  // most bytes of the text
  std::size_t values = 4'000'000;              // most values in the whole tree
  int depth = 64;                              // most nested arrays and objects
};

// `source` names the text in errors, which read "<source>: byte <offset>: <reason>"; the offset is where the
// reader was when it found the reason. An integer outside of [INT64_MIN, UINT64_MAX] becomes a real; a number
// outside of the range of double is an error.
JsonValue parse_json(std::string_view text, std::string_view source, const JsonLimits& limits = {});

void write_json(JsonWriter& writer, const JsonValue& value);

}  // namespace prun
