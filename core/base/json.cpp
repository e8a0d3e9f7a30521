// Reads JSON: nlohmann's reader finds what a text holds, a Tree keeps it and its limits.
#include "base/json.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "prun/visible.hpp"

namespace prun {
namespace {

// Walks over a text for the library's reader, and shows how far it is.
class Cursor {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Cursor(const char* at, std::size_t& passed) : at_(at), passed_(&passed) {}
  reference operator*() const { return *at_; }
  Cursor& operator++() {
    ++at_;
    ++*passed_;
    return *this;
  }
  bool operator==(const Cursor& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  std::size_t* passed_;
};

// The library's reader calls this with each thing it finds (its SAX interface): it builds the tree.
class Tree {
 public:
  Tree(std::string_view text, std::string_view source, const JsonLimits& limits)
      : text_(text), source_(source), limits_(limits) {}

  JsonValue read() {
    if (text_.size() > limits_.bytes)
      fail(0, "the text is larger than the limit of ", limits_.bytes, " bytes");
    // The library would skip the mark and take the zero for the end.
    if (text_.starts_with("\xef\xbb\xbf")) fail(0, "the text starts with a byte order mark");
    if (const std::size_t nul = text_.find('\0'); nul != std::string_view::npos) fail(nul, "a byte is zero");
    const char* const begin = text_.data();
    nlohmann::json::sax_parse(Cursor(begin, passed_), Cursor(begin + text_.size(), passed_), this);
    return std::move(root_);
  }

  bool null() { return add(JsonValue()); }
  bool boolean(bool value) { return add(JsonValue(value)); }
  // Takes a negative number, and so 0 is "-0": only a real has a negative zero.
  bool number_integer(std::int64_t value) { return add(value == 0 ? JsonValue(-0.0) : JsonValue(value)); }
  bool number_unsigned(std::uint64_t value) {
    if (value > std::numeric_limits<std::int64_t>::max()) return add(JsonValue(value));
    return add(JsonValue(static_cast<std::int64_t>(value)));
  }
  bool number_float(double value, const std::string&) { return add(JsonValue(value)); }
  bool string(std::string& value) { return add(JsonValue(std::move(value))); }
  bool binary(nlohmann::json::binary_t&) { fail(passed_, "JSON has no binary values"); }

  bool start_object(std::size_t) { return open(); }
  bool start_array(std::size_t) { return open(); }
  bool key(std::string& name) {
    scopes_.back().members.push_back({std::move(name), {}});
    scopes_.back().name_ends.push_back(passed_);
    return true;
  }
  bool end_object() {
    Scope scope = close();
    JsonObject object(std::move(scope.members));
    if (const std::size_t twice = object.first_duplicate(); twice < scope.name_ends.size())
      fail(scope.name_ends[twice], "the object has this name already (duplicate name)");
    return put(JsonValue(std::move(object)));
  }
  bool end_array() { return put(JsonValue(close().items)); }

  // Reports an error; `position` counts the bytes read, including the wrong one.
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& error) {
    constexpr int number_overflow = 406;
    if (error.id == number_overflow) fail(position - 1, "the number is outside of the range of double");
    std::string_view reason = error.what();
    if (const std::size_t start = reason.find(" - "); start != std::string_view::npos)
      reason.remove_prefix(start + 3);
    fail(position - 1, reason.substr(0, reason.find("; last read")));  // cut: it quotes the text
  }

 private:
  struct Scope {
    std::vector<JsonMember> members;
    std::vector<std::size_t> name_ends;  // ends of the members' names in the text
    JsonArray items;
  };

  template <class... Parts>
  [[noreturn]] void fail(std::size_t at, const Parts&... parts) const {
    throw_error(ErrorCode::bad_input, source_, ": byte ", at, ": ", parts...);
  }

  void count() {
    if (++values_ > limits_.values) fail(passed_, "more than ", limits_.values, " values");
  }
  bool add(JsonValue value) {
    count();
    return put(std::move(value));
  }
  bool put(JsonValue value) {
    if (scopes_.empty())
      root_ = std::move(value);
    else if (Scope& scope = scopes_.back(); scope.members.empty())
      scope.items.push_back(std::move(value));
    else
      scope.members.back().value = std::move(value);
    return true;
  }
  bool open() {
    count();
    if (scopes_.size() > static_cast<std::size_t>(limits_.depth))
      fail(passed_, "nested deeper than ", limits_.depth, " levels");
    scopes_.emplace_back();
    return true;
  }
  Scope close() {
    Scope scope = std::move(scopes_.back());
    scopes_.pop_back();
    return scope;
  }

  std::string_view text_;
  std::string_view source_;
  JsonLimits limits_;
  std::size_t passed_ = 0;  // bytes that the reader has taken
  std::size_t values_ = 0;
  std::vector<Scope> scopes_;  // open scopes, the innermost last
  JsonValue root_;
};

const char* kind_name(JsonKind kind) {
  switch (kind) {
    case JsonKind::null: return "null";
    case JsonKind::boolean: return "a boolean";
    case JsonKind::integer:
    case JsonKind::unsigned_integer: return "an integer";
    case JsonKind::real: return "a real number";
    case JsonKind::string: return "a string";
    case JsonKind::array: return "an array";
    case JsonKind::object: return "an object";
  }
  return "?";
}

[[noreturn]] void throw_kind(const char* wanted, JsonKind found) {
  throw_error(ErrorCode::bad_input, "expected ", wanted, " in JSON, found ", kind_name(found));
}

template <class T>
const T& get_or_throw(const JsonValue::Storage& storage, const char* wanted, JsonKind found) {
  const T* value = std::get_if<T>(&storage);
  if (value == nullptr) throw_kind(wanted, found);
  return *value;
}

}  // namespace

JsonObject::JsonObject(std::vector<JsonMember> members) : members_(std::move(members)) {
  by_name_.resize(members_.size());
  std::iota(by_name_.begin(), by_name_.end(), std::uint32_t{0});
  std::sort(by_name_.begin(), by_name_.end(), [&](std::uint32_t a, std::uint32_t b) {
    const int order = members_[a].name.compare(members_[b].name);
    return order != 0 ? order < 0 : a < b;
  });
}

const JsonValue* JsonObject::find(std::string_view name) const {
  const auto before = [&](std::uint32_t i, std::string_view key) { return members_[i].name < key; };
  const auto found = std::lower_bound(by_name_.begin(), by_name_.end(), name, before);
  if (found == by_name_.end() || members_[*found].name != name) return nullptr;
  return &members_[*found].value;
}

std::size_t JsonObject::first_duplicate() const {
  std::size_t first = members_.size();
  for (std::size_t i = 1; i < by_name_.size(); ++i) {
    if (members_[by_name_[i - 1]].name == members_[by_name_[i]].name) {
      first = std::min(first, std::size_t{by_name_[i]});
    }
  }
  return first;
}

bool JsonValue::as_bool() const { return get_or_throw<bool>(storage_, "a boolean", kind()); }

std::int64_t JsonValue::as_int64() const {
  return get_or_throw<std::int64_t>(storage_, "an integer that fits in 64 bits with sign", kind());
}

std::uint64_t JsonValue::as_uint64() const {
  if (const auto* large = std::get_if<std::uint64_t>(&storage_)) return *large;
  const auto* number = std::get_if<std::int64_t>(&storage_);
  if (number == nullptr) throw_kind("an unsigned integer", kind());
  if (*number < 0) throw_error(ErrorCode::bad_input, "expected an unsigned integer in JSON, found ", *number);
  return static_cast<std::uint64_t>(*number);
}

double JsonValue::as_double() const {
  if (const auto* real = std::get_if<double>(&storage_)) return *real;
  if (const auto* small = std::get_if<std::int64_t>(&storage_)) return static_cast<double>(*small);
  if (const auto* large = std::get_if<std::uint64_t>(&storage_)) return static_cast<double>(*large);
  throw_kind("a number", kind());
}

const std::string& JsonValue::as_string() const {
  return get_or_throw<std::string>(storage_, "a string", kind());
}

const JsonArray& JsonValue::as_array() const { return get_or_throw<JsonArray>(storage_, "an array", kind()); }

const JsonObject& JsonValue::as_object() const {
  return get_or_throw<JsonObject>(storage_, "an object", kind());
}

const JsonValue& JsonValue::at(std::string_view name) const {
  const JsonValue* found = find(name);
  if (found == nullptr) throw_error(ErrorCode::not_found, "the JSON object has no member '", name, "'");
  return *found;
}

JsonValue parse_json(std::string_view text, std::string_view source, const JsonLimits& limits) {
  return Tree(text, source, limits).read();
}

void write_json(JsonWriter& writer, const JsonValue& value) {
  switch (value.kind()) {
    case JsonKind::null: writer.null(); break;
    case JsonKind::boolean: writer.value(value.as_bool()); break;
    case JsonKind::integer: writer.value(value.as_int64()); break;
    case JsonKind::unsigned_integer: writer.value(value.as_uint64()); break;
    case JsonKind::real: writer.value(value.as_double()); break;
    case JsonKind::string: writer.value(value.as_string()); break;
    case JsonKind::array:
      writer.begin_array();
      for (const JsonValue& item : value.as_array()) writer.value(item);
      writer.end_array();
      break;
    case JsonKind::object:
      writer.begin_object();
      for (const JsonMember& item : value.as_object().members()) writer.member(item.name, item.value);
      writer.end_object();
      break;
  }
}

}  // namespace prun
