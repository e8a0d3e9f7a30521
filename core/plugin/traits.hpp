// The traits that a PRUN_PLUGIN line may state: what the core must know before any of a plugin's code runs.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plugin/note.hpp"

namespace prun {

// Lists the phases of strategies, in the order in which they work.
inline constexpr std::array<std::string_view, 6> phases = {"model", "shard",  "partition",
                                                           "state", "memory", "order"};

inline constexpr std::string_view every_kind = "all";

enum class TraitForm : std::uint8_t {
  choice,      // one of `values`
  list,        // some of `values`, with commas between
  patterns,    // names of plugins of the same kind, with commas between; * and ? stand for what they do in a
               // shell
  library,     // a shared library, as the system looks for it
  name,        // of a plugin
  option,      // one of its own
  number,      // a whole one from 1 on
  names,       // of anything, with commas between
  settings,    // of its own options: "stage:1, stage:2"
  benches,     // words with blanks between, the settings that make up one: "none keep:device, all keep:host"
  variable,    // of the environment
  variations,  // of its own options, each with the values that it may have: "stage:1|2|3, sequence"; values
               // that are not listed are those that the option allows, @schedule plugins of that kind
};

struct TraitRule {
  std::string_view kind;  // of the plugins that may state it, or every_kind
  std::string_view key;
  TraitForm form = TraitForm::choice;
  std::span<const std::string_view> values;
  bool required = false;
  std::string_view help;
};

// All there are.
std::span<const TraitRule> trait_rules();

// Says what is wrong with a plugin's traits, as the end of a sentence about it; empty when nothing is.
std::string traits_problem(const PluginNote& note);

// Returns what a plugin states, or the empty text.
std::string_view trait_of(const PluginNote& note, std::string_view key);
// It returns what stands between commas, but for those in brackets: "stage:1|2", "place:host|(device:75,
// host:25)".
std::vector<std::string_view> items_of_trait(std::string_view text);
// Says whether one of the items of a list is this one.
bool trait_lists(const PluginNote& note, std::string_view key, std::string_view item);

}  // namespace prun
