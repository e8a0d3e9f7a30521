// Strict JSON: recursive descent over a string_view with bounded depth, and a streaming builder.
#include "base/json.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>

namespace prun {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Length of the well-formed UTF-8 sequence at the start of `text`, 0 when there is none.
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

// Length of the run at the start of `text` that a JSON string holds as it is: ASCII without quotes,
// backslashes and control characters.
std::size_t plain_length(std::string_view text) {
  const auto plain = [](char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; };
  return static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), plain) - text.begin());
}

void append_utf8(std::string& out, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xc0 | code >> 6);
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
  }
  put(0x80 | (code & 0x3f));
}

void append_escaped(std::string& out, char c) {
  constexpr std::string_view escaped = "\"\\\b\f\n\r\t";
  constexpr std::string_view letters = "\"\\bfnrt";
  constexpr std::string_view hex = "0123456789abcdef";
  const auto code = static_cast<unsigned char>(c);
  if (const std::size_t found = escaped.find(c); found != std::string_view::npos) {
    out += {'\\', letters[found]};
  } else if (code < 0x20) {
    out += {'\\', 'u', '0', '0', hex[code >> 4], hex[code & 15u]};
  } else {
    out += c;
  }
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view source, const JsonLimits& limits)
      : text_(text), source_(source), limits_(limits) {}

  JsonValue parse_document() {
    if (text_.size() > limits_.bytes) fail("the text is larger than the limit of ", limits_.bytes, " bytes");
    skip_space();
    JsonValue value = parse_value(0);
    skip_space();
    if (at_ != text_.size()) fail("text goes on after the end of the value");
    return value;
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw_error(ErrorCode::bad_input, source_, ": byte ", at_, ": ", parts...);
  }

  bool at_end() const { return at_ == text_.size(); }
  char peek() const {
    if (at_end()) fail("the text ends too early");
    return text_[at_];
  }
  bool take(char expected) {
    if (at_end() || text_[at_] != expected) return false;
    ++at_;
    return true;
  }
  void expect(char expected, const char* where) {
    if (!take(expected)) fail("expected '", expected, "' ", where);
  }
  void skip_space() {
    while (!at_end() && std::string_view(" \t\n\r").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  JsonValue parse_value(int depth);
  JsonValue parse_literal();
  void expect_word(std::string_view word);
  JsonValue parse_array(int depth);
  JsonValue parse_object(int depth);
  JsonMember parse_member(int depth);
  JsonValue parse_number();
  JsonValue integer_of(std::string_view digits, bool negative);
  JsonValue real_of(std::string_view digits);
  void skip_digits();
  std::string parse_string();
  void parse_escape(std::string& out);
  void parse_utf8(std::string& out);
  std::uint32_t parse_hex4();
  std::uint32_t parse_code_point();

  std::string_view text_;
  std::string_view source_;
  JsonLimits limits_;
  std::size_t at_ = 0;
  std::size_t values_ = 0;
};

JsonValue Parser::parse_value(int depth) {
  if (++values_ > limits_.values) fail("more than ", limits_.values, " values");
  if (depth > limits_.depth) fail("nested deeper than ", limits_.depth, " levels");
  const char c = peek();
  if (c == '{') return parse_object(depth);
  if (c == '[') return parse_array(depth);
  if (c == '"') return JsonValue(parse_string());
  if (c == '-' || is_digit(c)) return parse_number();
  return parse_literal();
}

JsonValue Parser::parse_literal() {
  const char c = text_[at_];
  if (c != 't' && c != 'f' && c != 'n') fail("expected a value");
  expect_word(c == 't' ? "true" : c == 'f' ? "false" : "null");
  if (c == 'n') return JsonValue();
  return JsonValue(c == 't');
}

void Parser::expect_word(std::string_view word) {
  if (text_.substr(at_, word.size()) != word) fail("expected '", word, "'");
  at_ += word.size();
}

JsonValue Parser::parse_array(int depth) {
  JsonArray items;
  ++at_;
  skip_space();
  if (take(']')) return JsonValue(std::move(items));
  while (true) {
    items.push_back(parse_value(depth + 1));
    skip_space();
    if (take(']')) return JsonValue(std::move(items));
    expect(',', "or ']' after an array element");
    skip_space();
  }
}

JsonMember Parser::parse_member(int depth) {
  if (at_end() || text_[at_] != '"') fail("expected a member name in quotes");
  JsonMember member{parse_string(), {}};
  skip_space();
  expect(':', "after a member name");
  skip_space();
  member.value = parse_value(depth + 1);
  return member;
}

JsonValue Parser::parse_object(int depth) {
  std::vector<JsonMember> members;
  std::vector<std::size_t> offsets;  // of the names, for the error about a duplicate
  ++at_;
  skip_space();
  if (take('}')) return JsonValue(JsonObject());
  while (true) {
    offsets.push_back(at_);
    members.push_back(parse_member(depth));
    skip_space();
    if (take('}')) break;
    expect(',', "or '}' after an object member");
    skip_space();
  }
  JsonObject object(std::move(members));
  if (const std::size_t twice = object.first_duplicate(); twice < offsets.size()) {
    at_ = offsets[twice];
    fail("the object has this name already (duplicate name)");
  }
  return JsonValue(std::move(object));
}

void Parser::skip_digits() {
  if (at_end() || !is_digit(text_[at_])) fail("expected a digit");
  while (!at_end() && is_digit(text_[at_])) ++at_;
}

JsonValue Parser::parse_number() {
  const std::size_t start = at_;
  const bool negative = take('-');
  if (take('0')) {
    if (!at_end() && is_digit(text_[at_])) fail("a number has no leading zeros");
  } else {
    skip_digits();
  }
  bool integer = true;
  if (take('.')) {
    integer = false;
    skip_digits();
  }
  if (take('e') || take('E')) {
    integer = false;
    if (!take('+')) take('-');
    skip_digits();
  }
  const std::string_view digits = text_.substr(start, at_ - start);
  // Only a real has a negative zero.
  if (!integer || digits == "-0") return real_of(digits);
  return integer_of(digits, negative);
}

JsonValue Parser::integer_of(std::string_view digits, bool negative) {
  std::int64_t small = 0;
  std::uint64_t large = 0;
  const char* end = digits.data() + digits.size();
  if (std::from_chars(digits.data(), end, small).ec == std::errc()) return JsonValue(small);
  if (!negative && std::from_chars(digits.data(), end, large).ec == std::errc()) return JsonValue(large);
  return real_of(digits);
}

JsonValue Parser::real_of(std::string_view digits) {
  double real = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), real);
  if (result.ec == std::errc() && std::isfinite(real)) return JsonValue(real);
  at_ -= digits.size();
  fail("the number is outside of the range of double");
}

std::string Parser::parse_string() {
  std::string out;
  ++at_;
  while (true) {
    const std::size_t plain = plain_length(text_.substr(at_));
    out.append(text_.substr(at_, plain));
    at_ += plain;
    const char c = peek();
    if (c == '"') break;
    if (c == '\\')
      parse_escape(out);
    else
      parse_utf8(out);
  }
  ++at_;
  return out;
}

void Parser::parse_utf8(std::string& out) {
  const std::size_t length = utf8_length(text_.substr(at_));
  if (length == 0) fail("a string is not valid UTF-8");
  if (static_cast<unsigned char>(text_[at_]) < 0x20) fail("a string holds a raw control character");
  out.append(text_.substr(at_, length));
  at_ += length;
}

void Parser::parse_escape(std::string& out) {
  constexpr std::string_view letters = "\"\\/bfnrt";
  constexpr std::string_view meanings = "\"\\/\b\f\n\r\t";
  ++at_;
  const char c = peek();
  if (const std::size_t found = letters.find(c); found != std::string_view::npos) {
    out.push_back(meanings[found]);
    ++at_;
  } else if (c == 'u') {
    ++at_;
    append_utf8(out, parse_code_point());
  } else {
    fail("a string holds an unknown escape");
  }
}

std::uint32_t Parser::parse_hex4() {
  const std::string_view digits = text_.substr(at_, 4);
  std::uint32_t code = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
  if (digits.size() != 4 || result.ptr != digits.data() + 4) fail("\\u needs four hexadecimal digits");
  at_ += 4;
  return code;
}

std::uint32_t Parser::parse_code_point() {
  const std::uint32_t high = parse_hex4();
  if (high < 0xd800 || high > 0xdfff) return high;
  if (high > 0xdbff || !take('\\') || !take('u')) fail("a string holds a lone surrogate");
  const std::uint32_t low = parse_hex4();
  if (low < 0xdc00 || low > 0xdfff) fail("a string holds a lone surrogate");
  return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}

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
  return Parser(text, source, limits).parse_document();
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
      text_.append(text.substr(at, length));
    at += length;
  }
  text_ += '"';
}

std::string JsonWriter::take() {
  PRUN_CHECK(scopes_.empty() && !text_.empty(), "the JSON text is not finished");
  return std::exchange(text_, {});
}

}  // namespace prun
