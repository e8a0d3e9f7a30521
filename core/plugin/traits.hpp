// Lists the traits that a PRUN_PLUGIN line may state: what the core must know before any of a plugin's code
// runs.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plugin/note.hpp"
#include "prun/options.hpp"
#include "prun/strategy.hpp"

namespace prun {

// ------------------------------------------------------------------- traits

// Lists the phases of strategies, in the order in which they work.
inline constexpr std::array<std::string_view, phase_count> phases = [] {
  std::array<std::string_view, phase_count> names;
  for (int i = 0; i < phase_count; ++i) names[static_cast<std::size_t>(i)] = name_of(static_cast<Phase>(i));
  return names;
}();

inline constexpr std::string_view every_kind = "all";

enum class TraitForm : std::uint8_t {
  choice,      // one of `values`
  list,        // some of `values`, separated by commas
  patterns,    // names of plugins of the same kind, separated by commas; * and ? mean what they do in a shell
  library,     // name of a shared library, as the system searches for it
  name,        // name of a plugin
  option,      // name of one of its own options
  number,      // whole number from 1 on
  names,       // names of anything, separated by commas
  settings,    // settings of its own options: "stage:1, stage:2"
  benches,     // words separated by blanks, the settings that make up one: "none keep:device, all keep:host"
  variable,    // environment variable
  variations,  // variations of its own options, each with the values that it may have: "stage:1|2|3,
               // sequence"; without values, those that the option allows; @schedule means plugins of that
               // kind
};

struct TraitRule {
  std::string_view kind;  // kind of the plugins that may state it, or every_kind
  std::string_view key;
  TraitForm form = TraitForm::choice;
  std::span<const std::string_view> values;
  bool required = false;
  std::string_view help;
};

std::span<const TraitRule> trait_rules();

// Says what is wrong with a plugin's traits, as the end of a sentence about it; empty when nothing is.
std::string traits_problem(const PluginNote& note);

// Returns what a plugin states for a trait, or the empty text.
std::string_view trait_of(const PluginNote& note, std::string_view key);
// Returns the items between commas, but not between those in brackets: "stage:1|2", "place:host|(device:75,
// host:25)".
std::vector<std::string_view> items_of_trait(std::string_view text);
// Says whether one of the items of a list is this one.
bool trait_lists(const PluginNote& note, std::string_view key, std::string_view item);
inline bool works_in(Phase phase, const PluginNote& strategy) {
  return trait_lists(strategy, "phase", name_of(phase));
}

// ------------------------------------------------------------------- options table
// Makes the table of calls by which a plugin reads options, from a class that has one static function for
// each.

// Makes the table; `source` is passed to the functions, which do not change it.
template <class Calls>
OptionsApi options_table(const void* source) {
  return {sizeof(OptionsApi), const_cast<void*>(source), Calls::integer,     Calls::number,    Calls::flag,
          Calls::text,        Calls::list_size,          Calls::list_number, Calls::list_text, Calls::has};
}

}  // namespace prun
