// The sections of a recipe and the options the core itself reads. A new section is one entry in
// core_schema.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "recipe/schema.hpp"

namespace prun::recipe {

struct SectionRule {
  std::string name;           // "optimizer"; "optimizer.group" lies inside another section
  bool list = false;          // [[strategy]] rather than [model]
  std::string plugin_kind;    // its `plugin` option names one of this kind, whose options it takes; or empty
  std::string value_kind;     // every non-empty value names a plugin of this kind; or empty
  bool at_least_one = false;  // of a list: an absent section is one item, all defaults
  std::string help;
  Schema schema;
  // [comm.ucx]: a table in it has the options of the plugin of this kind that it is named after; or empty.
  std::string table_kind;

  // Returns "[model]" or "[[strategy]]".
  std::string label() const { return list ? "[[" + name + "]]" : "[" + name + "]"; }
};

// In the order a recipe is printed. An enclosing section comes before what is inside it.
std::span<const SectionRule> core_sections();

}  // namespace prun::recipe
