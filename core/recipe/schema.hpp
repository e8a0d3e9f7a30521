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

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "recipe/diagnostics.hpp"
#include "recipe/value.hpp"

namespace prun::recipe {

// ------------------------------------------------------------------- schema

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

// ------------------------------------------------------------------- typed value
// Gives one written value its declared type, or says why it cannot have it.

// Checks type, range and choices; `subject` names the option in messages: "'lr' in [optimizer]".
std::optional<Value> convert(const Node& node, const Option& option, std::string_view subject,
                             Diagnostics& diagnostics);

// ------------------------------------------------------------------- core schema
// Lists the sections of a recipe and the options the core itself reads. A new section is one entry in
// schema.cpp.

struct SectionRule {
  std::string name;           // name such as "optimizer"; "optimizer.group" lies inside another section
  bool list = false;          // whether it is written as [[strategy]] rather than [model]
  std::string plugin_kind;    // kind of the plugin that `plugin` names, whose options it takes; or empty
  std::string value_kind;     // kind of the plugins that every non-empty value names; or empty
  bool at_least_one = false;  // for a list: an absent section is one item, all defaults
  std::string help;
  Schema schema;
  // In a section such as [comm.ucx], each table has the options of the plugin of this kind that it is named
  // after; or it is empty.
  std::string table_kind;

  // Returns a label such as "[model]" or "[[strategy]]".
  std::string label() const { return list ? "[[" + name + "]]" : "[" + name + "]"; }
};

// Returns the sections in the order in which a recipe is printed. An enclosing section comes before what is
// inside it.
std::span<const SectionRule> core_sections();

// ------------------------------------------------------------------- catalog
// Tells the recipe code which plugins there are. The code that knows the plugins (or a test) fills it in.

struct PluginCatalog {
  // Returns the options of a plugin, or null if there is no such plugin. Throws Error if there is one that
  // cannot be used; its message then becomes a problem of the recipe. The schema is copied before the next
  // call.
  std::function<const Schema*(std::string_view kind, std::string_view name)> schema;
  // Returns all known names of a kind, for suggestions and references.
  std::function<std::vector<std::string>(std::string_view kind)> names;
  // Returns what a config.json, or the folder that has it, says of a model plugin's options, as TOML by key;
  // if no plugin is named, of the plugin that reads it, with key `plugin`. If it is empty, no config.json can
  // be read.
  std::function<std::vector<std::pair<std::string, std::string>>(std::string_view name,
                                                                 const std::string& path)>
      model_options;
  // Returns one line on what a plugin is for.
  std::function<std::string(std::string_view kind, std::string_view name)> help;
};

}  // namespace prun::recipe
