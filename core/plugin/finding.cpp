#include "plugin/finding.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"

namespace prun {
namespace {

constexpr std::array<const char*, 3> words = {"good", "slow", "broken"};

}  // namespace

const char* name_of(Health health) { return words[static_cast<std::size_t>(health)]; }

Findings findings_in(std::string_view lines) {
  Findings findings;
  for (const std::string_view line : split(lines, '\n')) {
    if (line.empty()) continue;
    const std::vector<std::string_view> parts = split(line, '|');
    const auto word = std::find(words.begin(), words.end(), std::string_view(parts[0]));
    if (parts.size() != 4 || word == words.end())
      throw_error(ErrorCode::bad_input, "a finding of a plugin is not good|what|found|mend: '", line,
                  "'; mend the plugin's examine()");
    findings.push_back({static_cast<Health>(word - words.begin()), std::string(parts[1]),
                        std::string(parts[2]), std::string(parts[3])});
  }
  return findings;
}

}  // namespace prun
