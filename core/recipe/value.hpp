// Defines the values an option can take, and their textual forms: as a schema's default, after --set, as
// TOML.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace prun::recipe {

enum class OptionType : std::uint8_t {
  integer,
  real,
  boolean,
  string,
  choice,
  size,  // text such as "80GiB"; empty means not given
  integers,
  reals,
  strings,
  names,  // one text, kept as such, or a list of them
};

// Holds a value; choice, size and a lone name are kept as text.
using Value = std::variant<std::int64_t, double, bool, std::string, std::vector<std::int64_t>,
                           std::vector<double>, std::vector<std::string>>;

// Returns the word a schema uses: "int", "floats", ...
std::string_view name_of(OptionType type);
std::optional<OptionType> option_type(std::string_view name);
// Returns the words a message uses: "int", "list of floats", ...
std::string_view describe(OptionType type);
bool is_list(OptionType type);
// Returns the type of one element; a type that is no list is its own element.
OptionType element_of(OptionType type);

// Parses what a schema or a command line wrote for a value of this type: strings with or without quotes,
// lists with or without brackets. Returns nothing if the text is no such value, and never NaN or an infinity.
std::optional<Value> parse_value(OptionType type, std::string_view text);

// Returns the bytes of "80GiB", "512 MB" or "4096", or nothing if it is no size or does not fit.
std::optional<std::int64_t> parse_size(std::string_view text);

// Returns the value as TOML; doubles have the fewest digits that read back to the same number.
std::string to_toml(const Value& value);

}  // namespace prun::recipe
