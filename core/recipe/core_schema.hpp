// Lists the sections of a recipe and the options the core itself reads. A new section is one entry in
// core_schema.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "recipe/schema.hpp"

namespace prun::recipe {

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

}  // namespace prun::recipe
