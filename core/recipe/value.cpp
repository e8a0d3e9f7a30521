// Converts option values from and to text.
#include "recipe/value.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/text.hpp"

namespace prun::recipe {
namespace {

// ------------------------------------------------------------------- value

struct TypeName {
  OptionType type;
  std::string_view name;
  std::string_view description;
};

constexpr std::array<TypeName, 10> type_names = {{
    {OptionType::integer, "int", "int"},
    {OptionType::real, "float", "float"},
    {OptionType::boolean, "bool", "bool"},
    {OptionType::string, "string", "string"},
    {OptionType::choice, "choice", "string"},
    {OptionType::size, "size", "size such as \"80GiB\""},
    {OptionType::integers, "ints", "list of ints"},
    {OptionType::reals, "floats", "list of floats"},
    {OptionType::strings, "strings", "list of strings"},
    {OptionType::names, "names", "string or list of strings"},
}};

bool digit(char c) { return c >= '0' && c <= '9'; }

// Drops a leading plus and underscores between digits, as TOML allows them. Returns nothing if one is
// misplaced.
std::optional<std::string> plain_number(std::string_view text) {
  if (text.starts_with("+-")) return std::nullopt;
  if (text.starts_with('+')) text.remove_prefix(1);
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    if (i == 0 || i + 1 == text.size() || !digit(text[i - 1]) || !digit(text[i + 1])) return std::nullopt;
  }
  return out;
}

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  const std::optional<std::string> plain = plain_number(text);
  if (!plain || plain->empty()) return std::nullopt;
  Number number{};
  const char* const end = plain->data() + plain->size();
  const auto [stop, error] = std::from_chars(plain->data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

std::optional<double> parse_real(std::string_view text) {
  const std::optional<double> number = parse_number<double>(text);
  return number && std::isfinite(*number) ? number : std::nullopt;
}

void append_utf8(std::string& out, std::uint32_t letter) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80u | (letter >> shift & 0x3Fu)); };
  if (letter < 0x80) {
    out += static_cast<char>(letter);
  } else if (letter < 0x800) {
    out += static_cast<char>(0xC0u | letter >> 6);
    tail(0);
  } else if (letter < 0x10000) {
    out += static_cast<char>(0xE0u | letter >> 12);
    tail(6), tail(0);
  } else {
    out += static_cast<char>(0xF0u | letter >> 18);
    tail(12), tail(6), tail(0);
  }
}

// Appends the letter whose number of `digits` digits follows \u or \U; returns false if there is none.
bool unescape_number(std::string_view text, std::size_t digits, std::string& out) {
  std::uint32_t letter = 0;
  if (text.size() < digits) return false;
  const char* const end = text.data() + digits;
  const auto [stop, error] = std::from_chars(text.data(), end, letter, 16);
  if (error != std::errc() || stop != end || letter > 0x10FFFF || (letter >= 0xD800 && letter <= 0xDFFF))
    return false;
  append_utf8(out, letter);
  return true;
}

// Returns the inside of a "..." text.
std::optional<std::string> unescape_text(std::string_view inside) {
  constexpr std::string_view letters = "btnfr\"\\", meanings = "\b\t\n\f\r\"\\";
  std::string out;
  for (std::size_t i = 0; i < inside.size(); ++i) {
    if (inside[i] == '"') return std::nullopt;
    if (inside[i] != '\\') {
      out += inside[i];
      continue;
    }
    if (++i == inside.size()) return std::nullopt;
    if (inside[i] == 'u' || inside[i] == 'U') {
      const std::size_t digits = inside[i] == 'u' ? 4 : 8;
      if (!unescape_number(inside.substr(i + 1), digits, out)) return std::nullopt;
      i += digits;
      continue;
    }
    const std::size_t letter = letters.find(inside[i]);
    if (letter == letters.npos) return std::nullopt;
    out += meanings[letter];
  }
  return out;
}

std::optional<std::string> parse_text(std::string_view text) {
  const bool twice = text.size() >= 2 && text.front() == text.back();
  if (twice && text.front() == '"') return unescape_text(text.substr(1, text.size() - 2));
  if (twice && text.front() == '\'') return std::string(text.substr(1, text.size() - 2));
  return std::string(text);
}

// Splits at commas outside quotes.
std::vector<std::string_view> split_elements(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t start = 0;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == '"' && c == '\\')
      ++i;
    else if (quote != 0)
      quote = c == quote ? 0 : quote;
    else if (c == '"' || c == '\'')
      quote = c;
    else if (c == ',') {
      parts.push_back(trim(text.substr(start, i - start)));
      start = i + 1;
    }
  }
  const std::string_view last = trim(text.substr(start));
  if (!last.empty()) parts.push_back(last);
  return parts;
}

template <class Element>
std::optional<Value> parse_list(OptionType element, std::string_view text) {
  if (text.starts_with('[') != text.ends_with(']')) return std::nullopt;
  if (text.starts_with('[')) text = trim(text.substr(1, text.size() - 2));
  std::vector<Element> list;
  for (const std::string_view part : split_elements(text)) {
    if (part.empty()) return std::nullopt;
    std::optional<Value> one = parse_value(element, part);
    if (!one) return std::nullopt;
    list.push_back(std::get<Element>(*one));
  }
  return Value(std::move(list));
}

template <class T>
std::optional<Value> wrap(std::optional<T> value) {
  if (!value) return std::nullopt;
  return Value(std::in_place_type<T>, std::move(*value));
}

std::optional<bool> parse_bool(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

// Writes a letter that shows nothing or changes the direction of others by its number, so that nothing ends
// the text.
std::string escaped(std::string_view letter, char32_t value) {
  switch (value) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\t': return "\\t";
    default: break;
  }
  if (!is_control(value)) return std::string(letter);
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), value > 0xFFFF ? "\\U%08X" : "\\u%04X",
                static_cast<unsigned>(value));
  return text.data();
}

std::string toml_of(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const CodePoint letter = decode_utf8(text);
    const std::string_view bytes = text.substr(0, letter.bytes);
    out += letter.valid ? escaped(bytes, letter.value) : std::string(bytes);  // no reader takes such bytes
    text.remove_prefix(letter.bytes);
  }
  return out + "\"";
}

std::string toml_of(bool flag) { return flag ? "true" : "false"; }

std::string toml_of(std::int64_t number) { return std::to_string(number); }

// Writes 0.0003 rather than 3e-04, 1e-7 rather than 1e-07.
std::string toml_of(double number) {
  const double size = std::abs(number);
  const bool plain = size == 0 || (size >= 1e-6 && size < 1e15);
  std::array<char, 64> digits{};
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), number,
                                          plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string out(digits.data(), error == std::errc() ? end : digits.data());
  if (plain) return out.find('.') == std::string::npos ? out + ".0" : out;
  const std::size_t exponent = out.find('e') + 2;
  if (out[exponent] == '0') out.erase(exponent, 1);
  return out;
}

template <class Element>
std::string toml_of(const std::vector<Element>& list) {
  std::string out = "[";
  for (std::size_t i = 0; i < list.size(); ++i) out += (i > 0 ? ", " : "") + toml_of(list[i]);
  return out + "]";
}

struct SizeUnit {
  std::string_view name;
  double bytes;
};

constexpr std::array<SizeUnit, 10> size_units = {{{"", 1},
                                                  {"B", 1},
                                                  {"KB", 1e3},
                                                  {"MB", 1e6},
                                                  {"GB", 1e9},
                                                  {"TB", 1e12},
                                                  {"KiB", 1024.0},
                                                  {"MiB", 1048576.0},
                                                  {"GiB", 1073741824.0},
                                                  {"TiB", 1099511627776.0}}};

}  // namespace

std::string_view name_of(OptionType type) { return type_names[static_cast<std::size_t>(type)].name; }

std::string_view describe(OptionType type) { return type_names[static_cast<std::size_t>(type)].description; }

std::optional<OptionType> option_type(std::string_view name) {
  for (const TypeName& known : type_names)
    if (known.name == name) return known.type;
  return std::nullopt;
}

bool is_list(OptionType type) { return element_of(type) != type; }

OptionType element_of(OptionType type) {
  switch (type) {
    case OptionType::integers: return OptionType::integer;
    case OptionType::reals: return OptionType::real;
    case OptionType::strings:
    case OptionType::names: return OptionType::string;
    default: return type;
  }
}

std::optional<Value> parse_value(OptionType type, std::string_view text) {
  text = trim(text);
  switch (type) {
    case OptionType::integer: return wrap(parse_number<std::int64_t>(text));
    case OptionType::real: return wrap(parse_real(text));
    case OptionType::boolean: return wrap(parse_bool(text));
    case OptionType::string:
    case OptionType::choice:
    case OptionType::size: return wrap(parse_text(text));
    case OptionType::integers: return parse_list<std::int64_t>(OptionType::integer, text);
    case OptionType::reals: return parse_list<double>(OptionType::real, text);
    case OptionType::strings: return parse_list<std::string>(OptionType::string, text);
    case OptionType::names:
      return text.starts_with('[') || text.find(',') != text.npos
                 ? parse_list<std::string>(OptionType::string, text)
                 : wrap(parse_text(text));
  }
  return std::nullopt;
}

std::optional<std::int64_t> parse_size(std::string_view text) {
  text = trim(text);
  const std::size_t end = text.find_first_not_of("0123456789.");
  const std::string_view unit = end == std::string_view::npos ? "" : trim(text.substr(end));
  const std::optional<double> number = parse_real(text.substr(0, end));
  if (!number) return std::nullopt;
  for (const SizeUnit& known : size_units) {
    if (known.name != unit) continue;
    const double bytes = *number * known.bytes;
    return bytes < 9.2e18 ? std::optional(static_cast<std::int64_t>(bytes)) : std::nullopt;
  }
  return std::nullopt;
}

std::string to_toml(const Value& value) {
  return std::visit([](const auto& v) { return toml_of(v); }, value);
}

// ------------------------------------------------------------------- node
// Implements the tree of a recipe as written.

const Member* Node::find(std::string_view key) const {
  const auto found =
      std::find_if(members.begin(), members.end(), [key](const Member& m) { return m.key == key; });
  return found == members.end() ? nullptr : &*found;
}

Member* Node::find(std::string_view key) {
  const auto found =
      std::find_if(members.begin(), members.end(), [key](const Member& m) { return m.key == key; });
  return found == members.end() ? nullptr : &*found;
}

std::string_view describe(Node::Kind kind) {
  switch (kind) {
    case Node::Kind::table: return "table";
    case Node::Kind::list: return "list";
    case Node::Kind::integer: return "int";
    case Node::Kind::real: return "float";
    case Node::Kind::boolean: return "bool";
    case Node::Kind::string: return "string";
    case Node::Kind::date: return "date or time";
    case Node::Kind::bare: return "text";
  }
  return "?";
}

std::string describe(const Node& node) {
  return node.kind == Node::Kind::bare ? in_quotes(node.text) : std::string(describe(node.kind));
}

void merge_over(Node& below, Node above) {
  if (below.kind != Node::Kind::table || above.kind != Node::Kind::table) {
    below = std::move(above);
    return;
  }
  below.at = std::move(above.at);
  for (Member& member : above.members) {
    Member* const old = below.find(member.key);
    if (!old) {
      below.members.push_back(std::move(member));
      continue;
    }
    old->at = std::move(member.at);
    merge_over(old->value, std::move(member.value));
  }
}

}  // namespace prun::recipe
