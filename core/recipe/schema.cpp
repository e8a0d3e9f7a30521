// Reads the option tables of the core and of plugins.
#include "recipe/schema.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun::recipe {

namespace {

constexpr std::size_t max_text = 64 * 1024;
constexpr std::size_t max_line = 1024;
constexpr std::size_t max_options = 256;
constexpr std::size_t max_key = 64;
constexpr std::size_t max_key_parts = 4;

// Holds one line of the text while it is read; fail() names the place.
struct Line {
  std::string_view where;
  std::size_t number;

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw_error(ErrorCode::bad_input, where, ", options line ", number, ": ", parts...);
  }
};

using Columns = std::array<std::string_view, 5>;

Columns columns_of(std::string_view text, const Line& line) {
  Columns columns;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const bool last = i + 1 == columns.size();
    const std::size_t bar = last ? std::string_view::npos : text.find('|');
    if (!last && bar == std::string_view::npos)
      line.fail("expected 'key | type | default | range or choices | help', found ", i + 1, " columns");
    columns[i] = trim(text.substr(0, bar));
    if (!last) text.remove_prefix(bar + 1);
  }
  if (columns[4].empty()) line.fail("option ", in_quotes(columns[0]), " has no help; say what it means");
  return columns;
}

bool valid_key_part(std::string_view part) {
  if (part.empty() || part[0] < 'a' || part[0] > 'z') return false;
  return part.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

void check_key(std::string_view key, const Line& line) {
  if (key == "*") return;
  const std::vector<std::string_view> parts = split(key, '.');
  const bool good = key.size() <= max_key && parts.size() <= max_key_parts &&
                    std::all_of(parts.begin(), parts.end(), valid_key_part);
  if (!good)
    line.fail("key ", in_quotes(key),
              " is not made of lower-case letters, digits and '_', or is longer than ", max_key,
              " letters or ", max_key_parts, " parts");
}

OptionType type_of(std::string_view name, const Line& line) {
  const std::optional<OptionType> type = option_type(name);
  if (!type)
    line.fail("type ", in_quotes(name),
              " is none of int, float, bool, string, choice, size, ints, floats, strings, names");
  return *type;
}

std::optional<double> bound_of(OptionType element, std::string_view text, const Line& line) {
  if (text.empty()) return std::nullopt;
  const std::optional<Value> bound = parse_value(element, text);
  if (!bound) line.fail("bound ", in_quotes(text), " of the range is not an ", name_of(element));
  if (const auto* whole = std::get_if<std::int64_t>(&*bound)) return static_cast<double>(*whole);
  return std::get<double>(*bound);
}

void read_range(Option& option, std::string_view text, const Line& line) {
  if (text.empty()) return;
  const OptionType element = element_of(option.type);
  if (element != OptionType::integer && element != OptionType::real)
    line.fail("a ", name_of(option.type), " takes no range");
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos || trim(text) == "..")
    line.fail("range ", in_quotes(text), " is not of the form low..high, low.. or ..high");
  option.low = bound_of(element, trim(text.substr(0, dots)), line);
  option.high = bound_of(element, trim(text.substr(dots + 2)), line);
  if (option.low && option.high && *option.low > *option.high)
    line.fail("range ", in_quotes(text), " is empty");
  option.range = text;
}

void read_choices(Option& option, std::string_view text, const Line& line) {
  for (const std::string_view part : split(text, ',')) {
    const std::string choice(trim(part));
    if (choice.empty()) line.fail("choice ", in_quotes(option.key), " has an empty name among its choices");
    if (std::find(option.choices.begin(), option.choices.end(), choice) != option.choices.end())
      line.fail("choice ", in_quotes(option.key), " lists ", in_quotes(choice), " twice");
    option.choices.push_back(choice);
  }
}

template <class List>
bool all_in_range(const Option& option, const List& list) {
  return std::all_of(list.begin(), list.end(),
                     [&](auto number) { return option.in_range(static_cast<double>(number)); });
}

bool default_allowed(const Option& option) {
  const Value& value = option.default_value;
  if (const auto* whole = std::get_if<std::int64_t>(&value))
    return option.in_range(static_cast<double>(*whole));
  if (const auto* real = std::get_if<double>(&value)) return option.in_range(*real);
  if (const auto* wholes = std::get_if<std::vector<std::int64_t>>(&value))
    return all_in_range(option, *wholes);
  if (const auto* reals = std::get_if<std::vector<double>>(&value)) return all_in_range(option, *reals);
  const auto* text = std::get_if<std::string>(&value);
  if (!text) return true;
  if (option.type == OptionType::size) return text->empty() || parse_size(*text).has_value();
  if (option.type != OptionType::choice) return true;
  return std::find(option.choices.begin(), option.choices.end(), *text) != option.choices.end();
}

void read_default(Option& option, std::string_view text, const Line& line) {
  if (text == "required") option.presence = Presence::required;
  if (text == "none") option.presence = Presence::optional;
  if (option.presence != Presence::has_default) return;
  std::optional<Value> value = parse_value(option.type, text);
  if (!value)
    line.fail("default ", in_quotes(text), " of ", in_quotes(option.key), " is not of type ",
              name_of(option.type));
  option.default_value = std::move(*value);
  if (!default_allowed(option))
    line.fail("default ", in_quotes(text), " of ", in_quotes(option.key),
              " is not among the values it allows");
}

Option parse_option(std::string_view text, const Line& line) {
  const Columns columns = columns_of(text, line);
  check_key(columns[0], line);
  Option option;
  option.key = columns[0];
  option.type = type_of(columns[1], line);
  option.help = columns[4];
  if (option.type == OptionType::choice)
    read_choices(option, columns[3], line);
  else
    read_range(option, columns[3], line);
  read_default(option, columns[2], line);
  return option;
}

void check_line(std::string_view text, const Line& line) {
  if (text.size() > max_line) line.fail("longer than ", max_line, " bytes");
  const bool odd = std::any_of(text.begin(), text.end(),
                               [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
  if (odd || !valid_utf8(text)) line.fail("not printable UTF-8");
}

void add_option(std::vector<Option>& options, Option option, const Line& line) {
  if (options.size() == max_options) line.fail("more than ", max_options, " options");
  for (const Option& other : options)
    if (keys_collide(other.key, option.key))
      line.fail("option ", in_quotes(option.key), " collides with option ", in_quotes(other.key),
                " above it");
  options.push_back(std::move(option));
}

}  // namespace

const Option* Schema::find(std::string_view key) const {
  const auto found =
      std::find_if(options_.begin(), options_.end(), [key](const Option& o) { return o.key == key; });
  return found == options_.end() ? nullptr : &*found;
}

bool keys_collide(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  return b.starts_with(a) && (a.size() == b.size() || b[a.size()] == '.');
}

Schema parse_schema(std::string_view text, std::string_view where) {
  const std::string place = printable(where, 120);
  if (text.size() > max_text)
    throw_error(ErrorCode::bad_input, place, ": the option table is longer than ", max_text, " bytes");
  std::vector<Option> options;
  Line line{place, 0};
  for (const std::string_view raw : split(text, '\n')) {
    ++line.number;
    const std::string_view content = trim(raw);
    if (content.empty() || content.starts_with('#')) continue;
    check_line(content, line);
    add_option(options, parse_option(content, line), line);
  }
  return Schema(std::move(options));
}

std::string describe_default(const Option& option) {
  switch (option.presence) {
    case Presence::required: return "required";
    case Presence::optional: return "optional";
    case Presence::has_default: break;
  }
  return "default " + to_toml(option.default_value);
}

std::string describe_range(const Option& option) {
  if (option.type == OptionType::choice) return "one of " + join(option.choices, ", ");
  return option.range;
}

}  // namespace prun::recipe
