// Suggests what an unknown name in a recipe was probably meant to be.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace prun::recipe {

// Holds the keys that one section of this recipe accepts.
struct KeySet {
  std::string section;  // name such as "optimizer", whatever the index of a list's item
  std::string label;    // label such as "[optimizer]", "[[strategy]] 'zero'"
  std::vector<std::string> keys;
};

// Returns the end of a message about an undeclared key: "; did you mean 'lr'?", "; it belongs in
// [optimizer]", or empty. `here` is an index into `sections`, or their number for the top level.
std::string suggest_key(std::string_view key, std::size_t here, std::span<const KeySet> sections);

// Returns the key of this section that has this alias, or an empty text.
std::string key_by_alias(std::string_view name, const KeySet& section);

// Suggests the name of a section, as in "; did you mean [model]?".
std::string suggest_section(std::string_view name, std::span<const KeySet> sections);

// Suggests a plugin, or lists the known ones.
std::string suggest_plugin(std::string_view name, std::span<const std::string> known);

}  // namespace prun::recipe
