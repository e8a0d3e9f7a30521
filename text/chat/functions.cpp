#include "chat/functions.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/text.hpp"
#include "tokenizer/letters.hpp"
#include "tokenizer/normal_form.hpp"

namespace prun::chat {
namespace {

constexpr std::int64_t longest_range = 10'000;

[[noreturn]] void trouble(const std::string& what) { throw Trouble{what}; }

const std::string& need_text(const Value& value, std::string_view who) {
  if (const auto* const text = value.as<std::string>()) return *text;
  trouble(std::string(who) + " is asked of " + value.kind() + ", not of a text");
}
std::int64_t need_number(const Value& value, std::string_view who) {
  if (const auto* const number = value.as<std::int64_t>()) return *number;
  trouble(std::string(who) + " takes whole numbers, not " + value.kind());
}
const Value& argument(std::span<const Value> arguments, std::size_t i, std::string_view who) {
  if (i >= arguments.size()) trouble(std::string(who) + " lacks an argument");
  return arguments[i];
}

// Says whether a letter is white space as Python's strip() has it: that of Unicode and four separators.
bool is_space(std::string_view letter) {
  return (letter.size() == 1 && letter[0] >= 0x1C && letter[0] <= 0x1F) ||
         leading_spaces(letter) == letter.size();
}

// Appends to a text that a template makes.
void append(std::string& to, std::string_view more) {
  if (more.size() > most_bytes - std::min(most_bytes, to.size())) trouble("the text becomes too long");
  to += more;
}

// Says whether two numbers may be added, and what comes of it is a number still.
bool are_small(std::int64_t a, std::int64_t b, std::int64_t limit) {
  return a < limit && a > -limit && b < limit && b > -limit;
}
void check_sum(std::int64_t a, std::int64_t b, const std::string& sign) {
  if (!are_small(a, b, std::int64_t{1} << 62)) trouble("numbers are too large for " + sign);
}

// Returns the letters of one text.
std::vector<std::string_view> letters_of(std::string_view text) {
  std::vector<std::string_view> letters;
  while (!text.empty()) {
    letters.push_back(text.substr(0, decode_utf8(text).bytes));
    text.remove_prefix(letters.back().size());
  }
  return letters;
}

// Returns the text without `what`'s letters, or white space where there is none, at its ends.
std::string stripped(std::string_view text, std::span<const Value> arguments, bool left, bool right) {
  const bool given = !arguments.empty() && !arguments[0].is_none();
  const std::string letters = given ? need_text(arguments[0], "strip") : std::string();
  const std::vector<std::string_view> set = letters_of(letters);
  const auto goes = [&](std::string_view letter) {
    return given ? std::find(set.begin(), set.end(), letter) != set.end() : is_space(letter);
  };
  while (left && !text.empty() && goes(text.substr(0, decode_utf8(text).bytes)))
    text.remove_prefix(decode_utf8(text).bytes);
  while (right && !text.empty()) {
    std::size_t at = text.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    if (!goes(text.substr(at))) break;
    text = text.substr(0, at);
  }
  return std::string(text);
}

std::string replaced(const std::string& text, const std::string& from, const std::string& to) {
  if (from.empty()) trouble("replace of an empty text is not something that prun has in templates");
  std::string made;
  for (std::size_t at = 0;;) {
    const std::size_t found = text.find(from, at);
    append(made, std::string_view(text).substr(at, found - at));
    if (found == text.npos) return made;
    append(made, to);
    at = found + from.size();
  }
}

Value split_of(const std::string& text, std::span<const Value> arguments) {
  const std::string& by = need_text(argument(arguments, 0, "split"), "split");
  if (by.empty() || arguments.size() > 1)
    trouble("split is given what prun does not have in templates: one text that is not empty is all");
  List parts;
  for (std::size_t at = 0;;) {
    const std::size_t found = text.find(by, at);
    parts.emplace_back(text.substr(at, found - at));
    if (parts.size() > most_bytes / sizeof(Value)) trouble("the list becomes too long");
    if (found == text.npos) return Value::of(std::move(parts));
    at = found + by.size();
  }
}

std::string in_lower_case(std::string_view text) {
  std::string made;
  while (!text.empty()) {
    const std::string_view letter = text.substr(0, decode_utf8(text).bytes);
    text.remove_prefix(letter.size());
    const char32_t value = decode_utf8(letter).value;
    const std::u32string_view lower = lower_case_of(value);
    if (value < 0x80)
      made += value >= 'A' && value <= 'Z' ? static_cast<char>(value - 'A' + 'a') : letter[0];
    else if (lower.empty())
      made += letter;
    else
      for (const char32_t one : lower) append_utf8(made, one);
  }
  return made;
}

std::string in_upper_case(std::string_view text) {
  std::string made;
  for (const char byte : text) {
    if (static_cast<unsigned char>(byte) >= 0x80)
      trouble("upper is asked of letters beyond ASCII, which prun does not have in templates");
    made += byte >= 'a' && byte <= 'z' ? static_cast<char>(byte - 'a' + 'A') : byte;
  }
  return made;
}

std::int64_t letters_in(std::string_view text) {
  std::int64_t letters = 0;
  for (; !text.empty(); text.remove_prefix(decode_utf8(text).bytes)) ++letters;
  return letters;
}

std::int64_t length_of(const Value& value) {
  if (const auto* const text = value.as<std::string>()) return letters_in(*text);
  if (const List* const list = value.list()) return static_cast<std::int64_t>(list->size());
  if (const Dict* const dict = value.dict()) return static_cast<std::int64_t>(dict->entries().size());
  trouble(std::string("length is asked of ") + value.kind());
}

Value items_of(const Dict& dict) {
  List items;
  for (const auto& [key, value] : dict.entries()) items.push_back(Value::of(List{Value(key), value}));
  return Value::of(std::move(items));
}

Value keys_of(const Dict& dict) {
  List keys;
  for (const auto& entry : dict.entries()) keys.emplace_back(entry.first);
  return Value::of(std::move(keys));
}

std::string joined(const Value& list, const std::string& between) {
  if (!list.list()) trouble(std::string("join is asked of ") + list.kind() + ", not of a list");
  std::string text;
  for (const Value& item : *list.list()) {
    if (&item != list.list()->data()) append(text, between);
    append(text, text_of(item));
  }
  return text;
}

Value call_text_method(const std::string& name, const std::string& text, std::span<const Value> arguments) {
  if (name == "strip" || name == "lstrip" || name == "rstrip")
    return {stripped(text, arguments, name != "rstrip", name != "lstrip")};
  if (name == "startswith") return {text.starts_with(need_text(argument(arguments, 0, name), name))};
  if (name == "endswith") return {text.ends_with(need_text(argument(arguments, 0, name), name))};
  if (name == "split") return split_of(text, arguments);
  if (name == "lower") return {in_lower_case(text)};
  if (name == "upper") return {in_upper_case(text)};
  if (name == "join") return {joined(argument(arguments, 0, name), text)};
  if (name == "replace" && arguments.size() == 2)
    return {replaced(text, need_text(arguments[0], name), need_text(arguments[1], name))};
  trouble("'" + name + "' of a text is not something that prun has in templates");
}

Value call_dict_method(const std::string& name, const Dict& dict, std::span<const Value> arguments) {
  if (name == "items") return items_of(dict);
  if (name == "keys") return keys_of(dict);
  if (name == "get") {
    const Value* const found = dict.find(need_text(argument(arguments, 0, name), name));
    return found ? *found : arguments.size() > 1 ? arguments[1] : Value(nullptr);
  }
  trouble("'" + name + "' of a dict is not something that prun has in templates");
}

void append_json_text(const std::string& text, std::string& out) {
  out += '"';
  for (const char byte : text) {
    if (out.size() > most_bytes) trouble("the text becomes too long");
    constexpr std::string_view plain = "\"\\\n\r\t\b\f", written = "\"\\nrtbf";
    if (const std::size_t at = plain.find(byte); at != plain.npos) {
      out += '\\';
      out += written[at];
    } else if (static_cast<unsigned char>(byte) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(byte));
      out += code;
    } else {
      out += byte;
    }
  }
  out += '"';
}

bool contains(const Value& in, const Value& what) {
  if (const auto* const text = in.as<std::string>()) return text->find(need_text(what, "in")) != text->npos;
  if (const Dict* const dict = in.dict())
    return what.as<std::string>() && dict->find(*what.as<std::string>());
  if (const List* const list = in.list())
    return std::any_of(list->begin(), list->end(), [&](const Value& item) { return item.equals(what); });
  trouble(std::string("in is asked of ") + in.kind());
}

Value sum_of(const Value& left, const Value& right) {
  if (left.as<std::string>() && right.as<std::string>())
    return {*left.as<std::string>() + *right.as<std::string>()};
  if (!left.list() || !right.list()) {
    const std::int64_t a = need_number(left, "+"), b = need_number(right, "+");
    check_sum(a, b, "+");
    return {a + b};
  }
  List all = *left.list();
  all.insert(all.end(), right.list()->begin(), right.list()->end());
  return Value::of(std::move(all));
}

int order_of(const Value& left, const Value& right, const std::string& sign) {
  if (left.as<std::string>() && right.as<std::string>()) {
    const int order = left.as<std::string>()->compare(*right.as<std::string>());
    return (order > 0) - (order < 0);
  }
  const std::int64_t a = need_number(left, sign), b = need_number(right, sign);
  return (a > b) - (a < b);
}

// Rounds as Python does: towards minus infinity.
std::int64_t floor_of(std::int64_t a, std::int64_t b) {
  return a / b - ((a % b != 0) && ((a < 0) != (b < 0)) ? 1 : 0);
}

Value product_of(const std::string& sign, std::int64_t a, std::int64_t b) {
  if (!are_small(a, b, std::int64_t{1} << 31)) trouble("numbers are too large for " + sign);
  if (sign == "*") return {a * b};
  if (sign != "%" && sign != "//") trouble("'" + sign + "' is not something that prun has in templates");
  if (b == 0) trouble("something is divided by zero");
  return {sign == "//" ? floor_of(a, b) : a - floor_of(a, b) * b};
}

void append_json(const Value& value, std::string& out) {
  std::string_view between;
  if (const auto* const text = value.as<std::string>()) {
    append_json_text(*text, out);
  } else if (const List* const list = value.list()) {
    out += '[';
    for (const Value& item : *list) {
      append(out, std::exchange(between, ", "));
      append_json(item, out);
    }
    out += ']';
  } else if (const Dict* const dict = value.dict()) {
    out += '{';
    for (const auto& [key, item] : dict->entries()) {
      append(out, std::exchange(between, ", "));
      append_json_text(key, out);
      append(out, ": ");
      append_json(item, out);
    }
    out += '}';
  } else if (const bool* const flag = value.as<bool>()) {
    out += *flag ? "true" : "false";
  } else if (value.is_none() || value.as<std::int64_t>()) {
    out += value.is_none() ? "null" : text_of(value);
  } else {
    trouble(std::string("tojson of ") + value.kind() + " is not something that prun has in templates");
  }
}

}  // namespace

std::string text_of(const Value& value) {
  if (const auto* const text = value.as<std::string>()) return *text;
  if (const auto* const number = value.as<std::int64_t>()) return std::to_string(*number);
  if (const bool* const flag = value.as<bool>()) return *flag ? "True" : "False";
  if (value.is_none()) return "None";
  if (value.is_undefined()) return "";
  trouble(std::string(value.kind()) + " is to be written as a text, which prun does not have in templates");
}

std::string json_of(const Value& value) {
  std::string out;
  append_json(value, out);
  return out;
}

Value item_of(const Value& of, const Value& key) {
  if (const auto* const undefined = of.as<Undefined>())
    trouble("'" + undefined->name + "' is not there, and something of it is asked for");
  const auto* const name = key.as<std::string>();
  const auto missing = [&] { return Value(Undefined{name ? *name : "an item"}); };
  if (const List* const list = of.list()) {
    const auto* const number = key.as<std::int64_t>();
    if (!number) return missing();
    const auto size = static_cast<std::int64_t>(list->size());
    const std::int64_t at = *number < 0 ? *number + size : *number;
    return at < 0 || at >= size ? missing() : (*list)[static_cast<std::size_t>(at)];
  }
  const auto* const space = of.as<Value::Namespace>();
  const Dict* const dict = space ? space->names : of.dict();
  if (!dict && of.as<std::string>() && !name)
    trouble("letters of a text by number are not something that prun has in templates");
  const Value* const found = dict && name ? dict->find(*name) : nullptr;
  return found ? *found : missing();
}

Value call_function(const std::string& name, std::span<const Value> arguments) {
  if (name == "raise_exception")
    trouble("the template refuses the conversation: " + text_of(argument(arguments, 0, name)));
  if (name == "strftime_now")
    trouble(
        "the template asks for the day's date, which would make other tokens each day; give one that has it "
        "in its text");
  if (name == "range") {
    const std::int64_t first = arguments.size() > 1 ? need_number(arguments[0], name) : 0;
    const std::int64_t last = need_number(argument(arguments, arguments.size() > 1 ? 1 : 0, name), name);
    check_sum(first, last, name);
    if (arguments.size() > 2 || last - first > longest_range)
      trouble("range is given what prun does not have in templates");
    List list;
    for (std::int64_t i = first; i < last; ++i) list.emplace_back(i);
    return Value::of(std::move(list));
  }
  trouble("the function '" + name + "' is not something that prun has in templates");
}

Value call_method(const std::string& name, const Value& of, std::span<const Value> arguments) {
  if (const auto* const text = of.as<std::string>()) return call_text_method(name, *text, arguments);
  if (const Dict* const dict = of.dict()) return call_dict_method(name, *dict, arguments);
  trouble("'" + name + "' of " + of.kind() + " is not something that prun has in templates");
}

Value call_filter(const std::string& name, std::span<const Value> arguments, const Named& named) {
  const Value& of = arguments[0];
  const std::span<const Value> rest = arguments.subspan(1);
  if (name == "tojson" && rest.empty() && named.empty()) return {json_of(of)};
  if (!named.empty())
    trouble("the filter '" + name + "' is given '" + named[0].first +
            "', which prun does not have in templates");
  if (name == "trim") return {stripped(text_of(of), rest, true, true)};
  if (name == "length" || name == "count") return {length_of(of)};
  if (name == "lower") return {in_lower_case(text_of(of))};
  if (name == "upper") return {in_upper_case(text_of(of))};
  if (name == "string") return {text_of(of)};
  if (name == "safe" || (name == "list" && of.list())) return of;
  if (name == "items" && of.dict()) return items_of(*of.dict());
  if (name == "join") return {joined(of, rest.empty() ? "" : need_text(rest[0], name))};
  if (name == "first" && of.list()) return of.list()->empty() ? Value() : of.list()->front();
  if (name == "last" && of.list()) return of.list()->empty() ? Value() : of.list()->back();
  if (name == "default" || name == "d")
    return of.is_undefined() || (rest.size() > 1 && rest[1].is_true() && !of.is_true())
               ? argument(rest, 0, name)
               : of;
  if (name == "replace" && rest.size() == 2)
    return {replaced(text_of(of), need_text(rest[0], name), need_text(rest[1], name))};
  trouble("the filter '" + name + "' of " + of.kind() + " is not something that prun has in templates");
}

bool passes_test(const std::string& name, const Value& value) {
  if (name == "defined") return !value.is_undefined();
  if (name == "undefined") return value.is_undefined();
  if (name == "none") return value.is_none();
  if (name == "string") return value.as<std::string>() != nullptr;
  if (name == "mapping") return value.dict() != nullptr;
  if (name == "boolean") return value.as<bool>() != nullptr;
  if (name == "true") return value.as<bool>() && value.is_true();
  if (name == "false") return value.as<bool>() && !value.is_true();
  if (name == "number") return value.as<std::int64_t>() || value.as<double>() || value.as<bool>();
  if (name == "integer") return value.as<std::int64_t>() != nullptr;
  if (name == "iterable" || name == "sequence")
    return value.list() || value.dict() || value.as<std::string>() ||
           (name == "iterable" && value.is_undefined());
  trouble("the test '" + name + "' is not something that prun has in templates");
}

Value apply_binary(const std::string& sign, const Value& left, const Value& right) {
  if (sign == "==") return {left.equals(right)};
  if (sign == "!=") return {!left.equals(right)};
  if (sign == "in") return {contains(right, left)};
  if (sign == "not in") return {!contains(right, left)};
  if (sign == "~") return {text_of(left) + text_of(right)};
  if (sign == "+") return sum_of(left, right);
  if (sign == "<") return {order_of(left, right, sign) < 0};
  if (sign == "<=") return {order_of(left, right, sign) <= 0};
  if (sign == ">") return {order_of(left, right, sign) > 0};
  if (sign == ">=") return {order_of(left, right, sign) >= 0};
  const std::int64_t a = need_number(left, sign), b = need_number(right, sign);
  if (sign != "-") return product_of(sign, a, b);
  check_sum(a, b, sign);
  return {a - b};
}

}  // namespace prun::chat
