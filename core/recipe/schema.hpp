// States which options exist. A plugin states its options as plain text, one line each, five columns:
//
//   key | type | default | range or choices | help
//   rope_theta | float | 1e4 | 1..1e9 | Base of the rotary embedding
//
// Types: int float bool string choice size ints floats strings names. The default is `required` (the user
// must give it), `none` (may be absent), or a value; an empty default is the empty string. A string that is
// literally one of these two words goes in quotes. Ranges are closed, either end may be absent. A dotted key
// is in a nested table. The key `*` takes any name not declared otherwise. Help is not optional. Lines that
// are blank or start with # are skipped.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/value.hpp"

namespace prun::recipe {

enum class Presence : std::uint8_t { has_default, required, optional };

struct Option {
  std::string key;
  OptionType type = OptionType::integer;
  Presence presence = Presence::has_default;
  Value default_value;  // meaningful for Presence::has_default
  std::optional<double> low, high;
  std::string range;  // range as written, for messages
  std::vector<std::string> choices;
  std::string help;

  bool in_range(double number) const { return (!low || number >= *low) && (!high || number <= *high); }
};

class Schema {
 public:
  Schema() = default;
  // Takes options whose keys differ from each other, and of which none is a table that holds another:
  // parse_schema ensures that.
  explicit Schema(std::vector<Option> options) : options_(std::move(options)) {}

  std::span<const Option> options() const { return options_; }
  // Returns an option, or null if the key is not declared. `*` is found under its own name only.
  const Option* find(std::string_view key) const;

 private:
  std::vector<Option> options_;
};

// Parses a schema; `where` names the text in messages, such as "plugin 'gpt'". Throws bad_input for a text
// that is broken, too long, or not printable UTF-8; it never trusts the text.
Schema parse_schema(std::string_view text, std::string_view where);

// Says whether one key is the other, or a table that would have to hold it.
bool keys_collide(std::string_view a, std::string_view b);

// Returns a text such as "default 12", "required" or "optional".
std::string describe_default(const Option& option);
// Returns a text such as "1..4096", "one of constant, linear, cosine", or an empty one.
std::string describe_range(const Option& option);

}  // namespace prun::recipe
