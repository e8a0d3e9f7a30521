#include "chat/value.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>

#include "chat/functions.hpp"
#include "tokenizer/letters.hpp"

namespace prun::chat {

// ------------------------------------------------------------------- value

const Value* Dict::find(std::string_view key) const {
  for (const auto& [name, value] : entries_)
    if (name == key) return &value;
  return nullptr;
}

void Extent::add(const Extent& part) {
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max() / 2;
  bytes = std::min(most, bytes + part.bytes);
  depth = std::max(depth, part.depth + 1);
}

std::size_t Dict::bytes_of_entry(std::string_view key, const Value& value) {
  return sizeof(std::string) + key.size() + value.extent().bytes;
}

std::size_t Dict::set(std::string key, Value value) {
  extent_.add({bytes_of_entry(key, value), value.extent().depth});
  for (auto& [name, old] : entries_)
    if (name == key) {
      const std::size_t replaced = bytes_of_entry(name, old);
      extent_.bytes -= replaced;
      old = std::move(value);
      return replaced;
    }
  entries_.emplace_back(std::move(key), std::move(value));
  return 0;
}

Value Value::of(List list, bool is_tuple) {
  Extent extent;
  for (const Value& item : list) extent.add(item.extent());
  return {std::make_shared<const Items>(std::move(list), extent, is_tuple)};
}

Extent Value::extent() const {
  Extent extent{sizeof(Value), 0};
  if (const auto* const text = as<std::string>()) extent.bytes += text->size();
  if (const auto* const items = as<std::shared_ptr<const Items>>()) extent.add((*items)->extent);
  if (const Dict* const entries = dict()) extent.add(entries->extent());
  return extent;
}

namespace {

// A real this large may have been written as a whole number, of which Python writes every digit.
double real_of(const JsonValue& json) {
  constexpr double largest = 9.2e18;
  if (std::abs(json.as_double()) >= largest)
    throw_error(ErrorCode::bad_input, "it holds the number ", json.as_double(),
                ", which is beyond 64 bits; write it as a text");
  return json.as_double();
}

}  // namespace

Value Value::of(const JsonValue& json) {
  switch (json.kind()) {
    case JsonKind::null: return {nullptr};
    case JsonKind::boolean: return {json.as_bool()};
    case JsonKind::integer: return {json.as_int64()};
    case JsonKind::unsigned_integer:
    case JsonKind::real: return {real_of(json)};
    case JsonKind::string: return {json.as_string()};
    case JsonKind::array: {
      List list;
      for (const JsonValue& item : json.as_array()) list.push_back(of(item));
      return of(std::move(list));
    }
    case JsonKind::object: break;
  }
  Dict dict;
  for (const JsonMember& member : json.as_object().members()) dict.set(member.name, of(member.value));
  return of(std::move(dict));
}

bool Value::is_true() const {
  if (const bool* const flag = as<bool>()) return *flag;
  if (const auto* const number = as<std::int64_t>()) return *number != 0;
  if (const auto* const number = as<double>()) return *number != 0;
  if (const auto* const text = as<std::string>()) return !text->empty();
  if (const List* const items = list()) return !items->empty();
  if (const Dict* const entries = dict()) return !entries->entries().empty();
  return as<Namespace>() || is_function();
}

namespace {

// Reads numbers and flags, which Python compares alike.
const double* number_of(const Value& value, double& number) {
  if (const bool* const flag = value.as<bool>()) return &(number = *flag ? 1 : 0);
  if (const auto* const whole = value.as<std::int64_t>()) return &(number = static_cast<double>(*whole));
  if (const auto* const real = value.as<double>()) return &(number = *real);
  return nullptr;
}

}  // namespace

bool Value::equals(const Value& other) const {
  double a = 0, b = 0;
  if (number_of(*this, a) && number_of(other, b)) return a == b;
  if (storage_.index() != other.storage_.index()) return false;
  if (const auto* const text = as<std::string>()) return *text == *other.as<std::string>();
  if (const List* const items = list())
    return is_tuple() == other.is_tuple() &&
           std::equal(items->begin(), items->end(), other.list()->begin(), other.list()->end(),
                      [](const Value& x, const Value& y) { return x.equals(y); });
  if (const auto* const macro = as<Macro>()) return macro->statement == other.as<Macro>()->statement;
  if (const auto* const space = as<Namespace>()) return space->names == other.as<Namespace>()->names;
  if (const Dict* const mine = dict()) {
    const auto& entries = mine->entries();
    return entries.size() == other.dict()->entries().size() &&
           std::all_of(entries.begin(), entries.end(), [&](const auto& entry) {
             const Value* const there = other.dict()->find(entry.first);
             return there && there->equals(entry.second);
           });
  }
  return is_undefined() || is_none();
}

const char* Value::kind() const {
  constexpr const char* kinds[] = {"nothing that is defined",
                                   "none",
                                   "a flag",
                                   "a number",
                                   "a number with a fraction",
                                   "a text",
                                   "a list",
                                   "a dict",
                                   "a namespace",
                                   "a macro",
                                   "a method"};
  return kinds[storage_.index()];
}

namespace {

// ------------------------------------------------------------------- operators
// Computes what operators between values give, as Python does.

// Says whether what comes of two numbers is a number still.
bool are_small(std::int64_t a, std::int64_t b, std::int64_t limit) {
  return a < limit && a > -limit && b < limit && b > -limit;
}

Value sum_of(const Value& left, const Value& right) {
  if (left.as<std::string>() && right.as<std::string>())
    return {*left.as<std::string>() + *right.as<std::string>()};
  if (!left.list() || !right.list() || left.is_tuple() != right.is_tuple())
    trouble(std::string("+ is asked of ") + left.kind() + " and " + right.kind());
  List all = *left.list();
  all.insert(all.end(), right.list()->begin(), right.list()->end());
  return Value::of(std::move(all), left.is_tuple());
}

// A text so many times.
Value repeated(const std::string& text, std::int64_t times) {
  std::string made;
  if (times > 0 && text.size() > most_bytes / static_cast<std::size_t>(times))
    trouble("the text becomes too long");
  for (std::int64_t i = 0; i < times && !text.empty(); ++i) made += text;
  return {std::move(made)};
}

// Rounds as Python does: towards minus infinity.
std::int64_t floor_of(std::int64_t a, std::int64_t b) {
  return a / b - ((a % b != 0) && ((a < 0) != (b < 0)) ? 1 : 0);
}

Value whole_result(const std::string& sign, std::int64_t a, std::int64_t b) {
  const bool is_sum = sign == "+" || sign == "-";
  if (!are_small(a, b, std::int64_t{1} << (is_sum ? 62 : 31))) trouble("numbers are too large for " + sign);
  if (is_sum) return {sign == "+" ? a + b : a - b};
  if (sign == "*") return {a * b};
  if (b == 0) trouble("something is divided by zero");
  return {sign == "//" ? floor_of(a, b) : a - floor_of(a, b) * b};
}

Value real_result(const std::string& sign, double a, double b) {
  if (sign == "+") return {a + b};
  if (sign == "-") return {a - b};
  if (sign == "*") return {a * b};
  if (b == 0) trouble("something is divided by zero");
  if (sign == "/") return {a / b};
  not_there("'" + sign + "' of numbers with a fraction");
}

}  // namespace

Value apply_binary(const std::string& sign, const Value& left, const Value& right) {
  if (sign == "~") return {text_of(left) + text_of(right)};
  if (sign == "**") not_there("'**'");
  const std::optional<double> a = any_number(left), b = any_number(right);
  if (a && b && (sign == "/" || left.as<double>() || right.as<double>())) {
    Value made = real_result(sign, *a, *b);
    if (!std::isfinite(*made.as<double>())) trouble("numbers are too large for " + sign);
    return made;
  }
  if (a && b) return whole_result(sign, *whole_number(left), *whole_number(right));
  if (sign == "+") return sum_of(left, right);
  if (sign == "*" && left.as<std::string>() && b)
    return repeated(*left.as<std::string>(), need_number(right, sign));
  if (sign == "*" && right.as<std::string>() && a)
    return repeated(*right.as<std::string>(), need_number(left, sign));
  trouble("'" + sign + "' is asked of " + left.kind() + " and " + right.kind());
}

namespace {

// ------------------------------------------------------------------- written
// Values as Python writes them: by str(), repr() and json.dumps().

void append_code(std::string& to, const char* pattern, std::uint32_t value) {
  char code[16];
  std::snprintf(code, sizeof code, pattern, value);
  to += code;
}

// The fewest digits that read back as the same number, with an exponent where it is large or small.
std::string text_of_real(double number) {
  if (!std::isfinite(number)) not_there("what is no finite number");
  char digits[64];
  const double size = std::abs(number);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto end = std::to_chars(digits, digits + sizeof digits, number,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific)
                       .ptr;
  std::string text(digits, end);
  if (plain && text.find('.') == text.npos) text += ".0";
  return text;
}

// Says whether repr() writes a letter by its code.
bool is_hidden(std::string_view letter, char32_t value) {
  if (value < 0x7F) return value < 0x20;
  return (is_of(LetterClass::bert_removed, value) && value != 0xFFFD) || is_space(letter);
}

void append_repr_text(const std::string& text, std::string& out) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  out += quote;
  each_letter(text, [&](std::string_view letter) {
    const char32_t value = decode_utf8(letter).value;
    constexpr std::string_view plain = "\\\n\r\t", written = "\\nrt";
    if (out.size() > most_bytes) trouble("the text becomes too long");
    const std::size_t at = letter.size() == 1 ? plain.find(letter[0]) : plain.npos;
    if (at != plain.npos || letter[0] == quote) {
      out += '\\';
      out += at != plain.npos ? written[at] : quote;
    } else if (is_hidden(letter, value)) {
      append_code(out, value < 0x100 ? "\\x%02x" : value < 0x10000 ? "\\u%04x" : "\\U%08x", value);
    } else {
      out += letter;
    }
  });
  out += quote;
}

void append_repr(const Value& value, std::string& out) {
  std::string_view between;
  const auto next = [&] { append(out, std::exchange(between, ", ")); };
  if (const auto* const text = value.as<std::string>()) return append_repr_text(*text, out);
  if (const List* const list = value.list()) {
    out += value.is_tuple() ? '(' : '[';
    for (const Value& item : *list) {
      next();
      append_repr(item, out);
    }
    if (value.is_tuple() && list->size() == 1) out += ',';
    out += value.is_tuple() ? ')' : ']';
  } else if (const Dict* const dict = value.dict()) {
    out += '{';
    for (const auto& [key, item] : dict->entries()) {
      next();
      append_repr_text(key, out);
      append(out, ": ");
      append_repr(item, out);
    }
    out += '}';
  } else if (value.is_undefined()) {
    not_there("what is not there, written in a list");
  } else {
    append(out, text_of(value));
  }
}

// How tojson writes, by its arguments.
struct JsonStyle {
  bool ascii = false, sorted = false, lines = false;
  std::string indent, between_items = ", ", behind_keys = ": ";
};

class JsonText {
 public:
  explicit JsonText(const JsonStyle& style) : style_(style) {}

  std::string of(const Value& value) {
    add(value, 0);
    return std::move(out_);
  }

 private:
  void add(const Value& value, int depth) {
    if (const auto* const text = value.as<std::string>()) return add_text(*text);
    if (const List* const list = value.list())
      return add_parts('[', ']', list->size(), depth, [&](std::size_t i) { add((*list)[i], depth + 1); });
    if (const Dict* const dict = value.dict()) return add_dict(*dict, depth);
    if (const bool* const flag = value.as<bool>())
      append(out_, *flag ? "true" : "false");
    else if (value.is_none())
      append(out_, "null");
    else if (value.as<std::int64_t>() || value.as<double>())
      append(out_, text_of(value));
    else
      not_there(std::string("tojson of ") + value.kind());
  }

  void add_dict(const Dict& dict, int depth) {
    std::vector<const std::pair<std::string, Value>*> entries;
    for (const auto& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sorted)
      std::sort(entries.begin(), entries.end(),
                [](const auto* a, const auto* b) { return a->first < b->first; });
    add_parts('{', '}', entries.size(), depth, [&](std::size_t i) {
      add_text(entries[i]->first);
      append(out_, style_.behind_keys);
      add(entries[i]->second, depth + 1);
    });
  }

  template <class Part>
  void add_parts(char begin, char end, std::size_t count, int depth, Part&& part) {
    out_ += begin;
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) append(out_, style_.between_items);
      begin_line(depth + 1);
      part(i);
    }
    if (count > 0) begin_line(depth);
    out_ += end;
  }

  void begin_line(int depth) {
    if (!style_.lines) return;
    out_ += '\n';
    for (int i = 0; i < depth; ++i) append(out_, style_.indent);
  }

  void add_text(const std::string& text) {
    out_ += '"';
    each_letter(text, [&](std::string_view letter) { add_letter(letter); });
    out_ += '"';
  }

  void add_letter(std::string_view letter) {
    if (out_.size() > most_bytes) trouble("the text becomes too long");
    constexpr std::string_view plain = "\"\\\n\r\t\b\f", written = "\"\\nrtbf";
    const std::uint32_t value = decode_utf8(letter).value;
    if (const std::size_t at = letter.size() == 1 ? plain.find(letter[0]) : plain.npos; at != plain.npos) {
      out_ += '\\';
      out_ += written[at];
    } else if (style_.ascii && value >= 0x10000) {
      append_code(out_, "\\u%04x", 0xD800 + ((value - 0x10000) >> 10));
      append_code(out_, "\\u%04x", 0xDC00 + ((value - 0x10000) & 0x3FF));
    } else if (value < 0x20 || (style_.ascii && value >= 0x7F)) {
      append_code(out_, "\\u%04x", value);
    } else {
      out_ += letter;
    }
  }

  const JsonStyle& style_;
  std::string out_;
};

void set_style(JsonStyle& style, std::string_view name, const Value& value) {
  if (name == "ensure_ascii") {
    style.ascii = value.is_true();
  } else if (name == "sort_keys") {
    style.sorted = value.is_true();
  } else if (name == "indent" && !value.is_none()) {
    constexpr std::int64_t widest = 1000;
    const auto* const text = value.as<std::string>();
    const std::int64_t width = text ? 0 : std::clamp(need_number(value, "indent"), std::int64_t{0}, widest);
    style.indent = text ? *text : std::string(static_cast<std::size_t>(width), ' ');
    style.lines = true;
  } else if (name == "separators" && !value.is_none()) {
    if (!value.list() || value.list()->size() != 2) trouble("separators of tojson are two texts");
    style.between_items = need_text((*value.list())[0], "tojson");
    style.behind_keys = need_text((*value.list())[1], "tojson");
  } else if (name != "indent" && name != "separators") {
    not_there("'" + std::string(name) + "' of the filter 'tojson'");
  }
}

}  // namespace

std::string text_of(const Value& value) {
  if (const auto* const text = value.as<std::string>()) return *text;
  if (const auto* const number = value.as<std::int64_t>()) return std::to_string(*number);
  if (const auto* const number = value.as<double>()) return text_of_real(*number);
  if (const bool* const flag = value.as<bool>()) return *flag ? "True" : "False";
  if (value.is_none()) return "None";
  if (value.is_undefined()) return "";
  if (!value.list() && !value.dict()) not_there(std::string(value.kind()) + " written as a text");
  std::string out;
  append_repr(value, out);
  return out;
}

std::string json_of(const Value& value, std::span<const Value> arguments, const Named& named) {
  constexpr std::string_view names[] = {"ensure_ascii", "indent", "separators", "sort_keys"};
  at_most(arguments, std::size(names), "tojson");
  JsonStyle style;
  std::vector<std::pair<std::string_view, const Value*>> given;
  for (std::size_t i = 0; i < arguments.size(); ++i) given.emplace_back(names[i], &arguments[i]);
  for (const auto& [name, argument] : named) given.emplace_back(name, &argument);
  for (const auto& [name, argument] : given)
    if (name == "indent" && !argument->is_none()) style.between_items = ",";
  for (const auto& [name, argument] : given) set_style(style, name, *argument);
  return JsonText(style).of(value);
}

}  // namespace prun::chat
