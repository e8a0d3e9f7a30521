// Lists the settings of strategies that `prun bench` tries, as their notes list them (trait `bench`).
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "plugin/discovery.hpp"

namespace prun {

struct BenchedSetting {
  std::string name;
  std::vector<std::pair<std::string, std::string>> values;  // of the strategy's options, or of whole keys
};
struct BenchedSettings {
  std::string name;  // name of what a setting is: the option whose values it is known by, or "setting"
  std::vector<BenchedSetting> list;

  std::vector<std::string> names() const;
};
// Returns the settings of one strategy; it may list none.
BenchedSettings benched_settings(const PluginNote& strategy);

// Returns the strategies that list some, by name.
std::vector<PluginNote> benched_strategies(std::span<const SearchPlace> places);

}  // namespace prun
