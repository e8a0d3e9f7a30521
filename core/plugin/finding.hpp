// Holds what a plugin or `prun doctor` says of one thing: its state, and what mends it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "prun/error.hpp"
#include "prun/status.hpp"

namespace prun {

enum class Health : std::uint8_t { good, slow, broken };

// Returns the word "good", "slow" or "broken".
const char* name_of(Health health);

struct Finding {
  Health health = Health::good;
  std::string what;   // such as "huge pages"
  std::string found;  // says what there is
  std::string mend;   // a command, or what to do; empty where nothing is to be done
};
using Findings = std::vector<Finding>;

// Parses lines as plugins write them: `good|what|found|mend`.
Findings findings_in(std::string_view lines);

// Returns the findings of a plugin, a device or a comm, by its examine().
template <class Interface>
Findings examined(Interface& plugin) {
  Text lines;
  raise(plugin.examine(&lines));
  return findings_in(lines.view());
}

}  // namespace prun
