// Lists settings of recipes that had another name once. A recipe that uses the old name is refused with the
// new one; what a run or a checkpoint has stored is read as if it had the new one.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace prun::recipe {

struct RenamedKey {
  std::string_view path, value;          // value as TOML; empty: any
  std::string_view new_path, new_value;  // new_value is empty if values kept their meaning

  // Returns "cannot read key 'run.changed': it is called 'run.allow_changed' now; rename it".
  std::string refusal() const;
};

// Returns the rule for a setting by an old name, or null. `value` is TOML.
const RenamedKey* find_renamed(std::string_view path, std::string_view value);

// Returns a setting that was stored, a path and TOML, by the name that it has now.
std::pair<std::string, std::string> stored_setting(const std::string& path, const std::string& value);

}  // namespace prun::recipe
