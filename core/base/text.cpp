// Implements small helpers for text.
#include "base/text.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <iterator>

#include "prun/visible.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- text

constexpr std::size_t longest_compared = 64;

struct CodeRange {
  char32_t first, last;
};

bool within(std::span<const CodeRange> ranges, char32_t value) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [value](CodeRange r) { return value >= r.first && value <= r.last; });
}

constexpr std::array<CodeRange, 5> zero_width = {
    {{0x0300, 0x036F}, {0x200B, 0x200F}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFEFF, 0xFEFF}}};
constexpr std::array<CodeRange, 9> double_width = {{{0x1100, 0x115F},
                                                    {0x2E80, 0xA4CF},
                                                    {0xAC00, 0xD7A3},
                                                    {0xF900, 0xFAFF},
                                                    {0xFE30, 0xFE6F},
                                                    {0xFF00, 0xFF60},
                                                    {0xFFE0, 0xFFE6},
                                                    {0x1F300, 0x1FAFF},
                                                    {0x20000, 0x3FFFD}}};

}  // namespace

CodePoint decode_utf8(std::string_view text) {
  const letters::Letter letter = letters::first(text);
  return {letter.value, letter.bytes, letter.valid};
}

bool valid_utf8(std::string_view text) { return valid_utf8_start(text) == text.size(); }

std::size_t valid_utf8_start(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const CodePoint point = decode_utf8(text.substr(at));
    if (!point.valid) return at;
    at += point.bytes;
  }
  return at;
}

int display_width(char32_t value) {
  if (value < 0x300) return 1;
  if (within(zero_width, value)) return 0;
  return within(double_width, value) ? 2 : 1;
}

bool is_control(char32_t value) { return letters::is_control(value); }

std::string_view trim(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string_view first_line(std::string_view text) { return text.substr(0, text.find('\n')); }

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += separator;
    out += parts[i];
  }
  return out;
}

std::string printable(std::string_view text, std::size_t max_code_points) {
  std::size_t end = 0;
  for (std::size_t n = 0; end < text.size(); ++n) {
    if (n == max_code_points) return visible(text.substr(0, end)) + "...";
    end += decode_utf8(text.substr(end)).bytes;
  }
  return visible(text);
}

std::string in_quotes(std::string_view text) { return "'" + printable(text, 60) + "'"; }

std::size_t edit_distance(std::string_view a, std::string_view b) {
  a = a.substr(0, longest_compared);
  b = b.substr(0, longest_compared);
  using Row = std::array<std::size_t, longest_compared + 1>;
  Row before{}, above{}, row{};
  for (std::size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replace});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = above;
    above = row;
  }
  return above[b.size()];
}

std::string nearest(std::string_view name, std::span<const std::string> candidates) {
  if (name.size() > longest_compared) return {};
  std::size_t best = std::max<std::size_t>(1, name.size() / 3) + 1;
  std::string found;
  for (const std::string& candidate : candidates) {
    const std::size_t gap =
        candidate.size() > name.size() ? candidate.size() - name.size() : name.size() - candidate.size();
    if (gap >= best) continue;
    const std::size_t distance = edit_distance(name, candidate);
    // A name with nothing in common is no suggestion, however short both are.
    if (distance >= best || distance >= std::max(name.size(), candidate.size())) continue;
    best = distance;
    found = candidate;
  }
  return found;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> candidates) {
  const std::string near = nearest(name, candidates);
  return near.empty() ? "" : "; did you mean " + in_quotes(near) + "?";
}

std::string size_text(double bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit ? "%.2f %s" : "%.0f %s", bytes, units[unit]);
  return text;
}

bool glob_match(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// ------------------------------------------------------------------- hub name

namespace fs = std::filesystem;

// A path with one folder that is here is rather one of the user's, misspelt.
std::string fetch_advice(const fs::path& missing) {
  const fs::path owner = missing.parent_path(), name = missing.filename();
  std::error_code ignored;
  if (missing.is_absolute() || name.empty() || std::distance(missing.begin(), missing.end()) != 2 ||
      owner.native().starts_with('.') || owner == "~" || fs::exists(owner, ignored))
    return {};
  const std::string shown = printable(missing.string(), 200);
  return "; prun loads nothing from a hub: fetch it first, as by `hf download " + shown +
         " --local-dir FOLDER`";
}

}  // namespace prun
