// Defines the values an option can take, and their textual forms: as a schema's default, after --set, as
// TOML.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "recipe/diagnostics.hpp"

namespace prun::recipe {

// ------------------------------------------------------------------- value

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

// ------------------------------------------------------------------- node
// Represents a recipe as written: a tree of tables, lists and scalars that knows where each part stands.
// Nothing in it has been checked against a schema.

struct Member;

struct Node {
  enum class Kind : std::uint8_t {
    table,
    list,
    integer,
    real,
    boolean,
    string,
    date,
    bare,  // text of a --set: the schema decides its type
  };

  Kind kind = Kind::table;
  Location at;                  // place of a table's header, or of the value
  std::vector<Member> members;  // members of a table, in the order they were written
  std::vector<Node> items;      // items of a list
  std::int64_t integer = 0;
  double real = 0;
  bool boolean = false;
  std::string text;  // text of a string or bare value

  const Member* find(std::string_view key) const;
  Member* find(std::string_view key);
};

struct Member {
  std::string key;
  Location at;
  Node value;
};

// Returns the words that messages use: "int", "table", ...
std::string_view describe(Node::Kind kind);
// Does the same, but returns the text itself if the type is still open.
std::string describe(const Node& node);

// Puts `above` over `below`, key by key: tables merge, everything else is replaced, including lists and
// tables of a list. Keys that only one has are kept; those of `below` come first.
void merge_over(Node& below, Node above);

}  // namespace prun::recipe
