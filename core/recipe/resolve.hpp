// Checks a tree against the schemas of core and plugins, and gives every option its value.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "recipe/catalog.hpp"
#include "recipe/core_schema.hpp"
#include "recipe/diagnostics.hpp"
#include "recipe/node.hpp"

namespace prun::recipe {

// Describes one option of one section of a recipe.
struct Entry {
  std::string path;  // path such as "strategy.0.stage"
  std::string key;   // key such as "stage"
  Option option;
  std::string declared_by;     // who declares it: "core" or "strategy plugin 'zero'"
  std::optional<Value> value;  // nothing if it is optional and absent
  Location at;                 // place of its key; no source if the value is the default
};

// Describes one table of the recipe; its entries are a range of ResolvedRecipe::entries.
struct SectionInfo {
  std::string path;  // path such as "model", "strategy.0"
  const SectionRule* rule = nullptr;
  std::string plugin;  // name of its plugin, or empty
  Location at;         // place of its header; no source if the recipe does not have it
  std::size_t first = 0;
  std::size_t count = 0;
};

struct ResolvedRecipe {
  std::vector<SectionInfo> sections;  // sections in the order of core_sections(), list items in theirs
  std::vector<Entry> entries;
  std::vector<std::string> emptied;  // lists written as [] that would otherwise have one item
  std::map<std::string, std::size_t, std::less<>> by_path;  // numbers into entries
};

// Resolves a tree. It reports every problem there is, not the first. The result is complete only if there was
// none. `main` is where a problem of a section that is not written is shown.
ResolvedRecipe resolve(const Node& root, const std::shared_ptr<const Source>& main,
                       const PluginCatalog& catalog, Diagnostics& diagnostics);

}  // namespace prun::recipe
