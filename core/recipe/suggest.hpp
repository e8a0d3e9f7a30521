// Suggests what an unknown name in a recipe was probably meant to be.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace prun::recipe {

// The keys one section of this recipe accepts.
struct KeySet {
  std::string section;  // "optimizer", whatever the index of a list's item
  std::string label;    // "[optimizer]", "[[strategy]] 'zero'"
  std::vector<std::string> keys;
};

// The end of a message about a key nobody declares: "; did you mean 'lr'?", "; it belongs in [optimizer]", or
// empty. `here` is an index into `sections`, or their number for the top level.
std::string suggest_key(std::string_view key, std::size_t here, std::span<const KeySet> sections);

// Returns the key of this section that has this alias; empty: none.
std::string key_by_alias(std::string_view name, const KeySet& section);

// Suggests the name of a section: "; did you mean [model]?"
std::string suggest_section(std::string_view name, std::span<const KeySet> sections);

// Suggests a plugin, or the list of those there are.
std::string suggest_plugin(std::string_view name, std::span<const std::string> known);

}  // namespace prun::recipe
