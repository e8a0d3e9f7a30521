// Implements JSON: nlohmann's reader finds what a text holds, a Tree keeps it and its limits; and a streaming
// builder writes.
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

// Returns the length of the well-formed UTF-8 sequence at the start of `text`, or 0 if there is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i]));
  };
  if (text.empty()) return 0;
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  std::uint32_t code = lead & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0u) != 0x80u) return 0;
    code = code << 6 | (byte(i) & 0x3fu);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  return overlong || surrogate || code > 0x10ffff ? 0 : length;
}

// Returns the length of the run at the start of `text` that a JSON string holds as it is: ASCII without
// quotes, backslashes and control characters.
std::size_t plain_length(std::string_view text) {
  const auto plain = [](char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; };
  return static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), plain) - text.begin());
}

void append_escaped(std::string& out, char c) {
  constexpr std::string_view escaped = "\"\\\b\f\n\r\t";
  constexpr std::string_view letters = "\"\\bfnrt";
  constexpr std::string_view hex = "0123456789abcdef";
  const auto code = static_cast<unsigned char>(c);
  if (const std::size_t found = escaped.find(c); found != std::string_view::npos) {
    out += {'\\', letters[found]};
  } else if (letters::is_control(code)) {
    out += {'\\', 'u', '0', '0', hex[code >> 4], hex[code & 15u]};
  } else {
    out += c;
  }
}

// Appends a letter of several bytes. One that a terminal would act on is written by its number, which readers
// take for the same.
void append_letter(std::string& out, std::string_view bytes) {
  const char32_t code = letters::first(bytes).value;
  if (!letters::is_control(code)) {
    out += bytes;
    return;
  }
  const auto number = [&](char32_t unit) {
    char text[16];
    std::snprintf(text, sizeof text, "\\u%04x", static_cast<unsigned>(unit));
    out += text;
  };
  if (code < 0x10000) return number(code);
  number(0xd800 + ((code - 0x10000) >> 10));
  number(0xdc00 + ((code - 0x10000) & 0x3ffu));
}

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

// ---- Writer ----

void JsonWriter::before_value() {
  if (scopes_.empty()) {
    PRUN_CHECK(text_.empty(), "a JSON text holds one value");
    return;
  }
  Scope& scope = scopes_.back();
  PRUN_CHECK(scope.is_object == named_, "values in an object, and only those, have a name");
  if (!scope.is_object && !scope.empty) text_ += ',';
  scope.empty = false;
  named_ = false;
}

JsonWriter& JsonWriter::open(bool is_object) {
  before_value();
  scopes_.push_back({is_object});
  text_ += is_object ? '{' : '[';
  return *this;
}

JsonWriter& JsonWriter::close(bool is_object) {
  PRUN_CHECK(!scopes_.empty() && scopes_.back().is_object == is_object && !named_, "unmatched end");
  scopes_.pop_back();
  text_ += is_object ? '}' : ']';
  return *this;
}

JsonWriter& JsonWriter::name(std::string_view name) {
  PRUN_CHECK(!scopes_.empty() && scopes_.back().is_object && !named_, "a name belongs into an object");
  if (!scopes_.back().empty) text_ += ',';
  append_string(name);
  text_ += ':';
  named_ = true;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  before_value();
  append_string(text);
  return *this;
}

JsonWriter& JsonWriter::write_token(std::string_view token) {
  before_value();
  text_ += token;
  return *this;
}

template <class Real>
JsonWriter& JsonWriter::write_real(Real number) {
  if (!std::isfinite(number)) {
    if (policy_ == NonFinite::write_null) return null();
    throw_error(ErrorCode::bad_input, "JSON cannot hold the number ", number,
                "; write null or a string instead");
  }
  char digits[32];
  const auto result = std::to_chars(std::begin(digits), std::end(digits), number);
  PRUN_CHECK(result.ec == std::errc(), "number needs more than 32 characters");
  return write_token(std::string_view(digits, static_cast<std::size_t>(result.ptr - digits)));
}
template JsonWriter& JsonWriter::write_real(float);
template JsonWriter& JsonWriter::write_real(double);

JsonWriter& JsonWriter::real(double number) {
  value(number);
  const std::size_t start = text_.find_last_of(",:[") + 1;
  if (text_.find_first_of(".e", start) == std::string::npos) text_ += ".0";
  return *this;
}

JsonWriter& JsonWriter::value(const JsonValue& tree) {
  switch (tree.kind()) {
    case JsonKind::null: return null();
    case JsonKind::boolean: return value(tree.as_bool());
    case JsonKind::integer: return value(tree.as_int64());
    case JsonKind::unsigned_integer: return value(tree.as_uint64());
    case JsonKind::real: return value(tree.as_double());
    case JsonKind::string: return value(tree.as_string());
    case JsonKind::array:
      begin_array();
      for (const JsonValue& item : tree.as_array()) value(item);
      return end_array();
    case JsonKind::object:
      begin_object();
      for (const JsonMember& item : tree.as_object().members()) member(item.name, item.value);
      return end_object();
  }
  return *this;
}

void JsonWriter::append_string(std::string_view text) {
  text_ += '"';
  for (std::size_t at = 0; at < text.size();) {
    if (const std::size_t plain = plain_length(text.substr(at)); plain > 0) {
      text_.append(text.substr(at, plain));
      at += plain;
      continue;
    }
    const std::size_t length = utf8_length(text.substr(at));
    if (length == 0) throw_error(ErrorCode::bad_input, "JSON text must be UTF-8, but byte ", at, " is not");
    if (length == 1)
      append_escaped(text_, text[at]);
    else
      append_letter(text_, text.substr(at, length));
    at += length;
  }
  text_ += '"';
}

std::string JsonWriter::take() {
  PRUN_CHECK(scopes_.empty() && !text_.empty(), "the JSON text is not finished");
  return std::exchange(text_, {});
}

}  // namespace prun
