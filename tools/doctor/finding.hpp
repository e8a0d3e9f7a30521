// Holds what `prun doctor` says of one thing: its state, and the command that mends it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace prun {

enum class Health : std::uint8_t { good, slow, broken };

struct Finding {
  Health health = Health::good;
  std::string what;   // such as "huge pages"
  std::string found;  // says what there is
  std::string mend;   // a command, or what to do; empty where nothing is to be done
};
using Findings = std::vector<Finding>;

// Returns a good finding with the text of `body`, or a broken one with its Error, which says what to do.
Finding attempt(const std::string& what, const std::function<std::string()>& body);

// Parses lines as plugins write them: `good|what|found|mend`.
Findings findings_in(std::string_view lines);

bool nothing_broken(std::span<const Finding> findings);
std::string to_text(std::span<const Finding> findings);
std::string to_json(std::span<const Finding> findings);

}  // namespace prun
