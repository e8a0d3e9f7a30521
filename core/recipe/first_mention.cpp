#include "recipe/first_mention.hpp"

#include <algorithm>
#include <vector>

#include "base/text.hpp"
#include "recipe/core_schema.hpp"

namespace prun::recipe {

namespace {

// Returns "[run]" of "[run] # all", or nothing.
std::string_view header_in(std::string_view line) {
  line = trim(line);
  const std::size_t end = line.find(']');
  return line.starts_with('[') && end != line.npos ? line.substr(0, end + 1) : std::string_view();
}

std::string_view key_in(std::string_view line) {
  const std::size_t equals = line.find('=');
  const std::string_view key = trim(line.substr(0, equals));
  return equals == line.npos || key.starts_with('#') ? std::string_view() : key;
}

std::string_view name_in(std::string_view header) {
  const std::size_t first = header.find_first_not_of("[ \t"), last = header.find_last_not_of("] \t");
  return first == header.npos ? std::string_view() : header.substr(first, last + 1 - first);
}

bool takes_several(std::string_view section) {
  const auto rules = core_sections();
  return std::any_of(rules.begin(), rules.end(),
                     [&](const SectionRule& rule) { return rule.list && rule.name == section; });
}

std::string first_in(std::size_t index) { return "; the first is in line " + std::to_string(index + 1); }

}  // namespace

std::string first_mention(std::string_view text, std::uint32_t line) {
  const std::vector<std::string_view> lines = split(text, '\n');
  if (line < 1 || line > lines.size()) return {};
  const std::string_view header = header_in(lines[line - 1]), key = key_in(lines[line - 1]);
  if (!header.empty()) {
    const std::string_view name = name_in(header);
    for (std::size_t i = 0; i + 1 < line; ++i)
      if (const std::string_view other = header_in(lines[i]); !other.empty() && name_in(other) == name)
        return first_in(i) + (takes_several(name)
                                  ? ", and there may be several: write [[" + std::string(name) + "]] for each"
                                  : ", so put both in one");
    return {};
  }
  for (std::size_t i = line - 1; !key.empty() && i-- > 0 && header_in(lines[i]).empty();)
    if (key_in(lines[i]) == key) return first_in(i) + ", so leave one of them out";
  return {};
}

}  // namespace prun::recipe
