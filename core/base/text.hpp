// Provides small text helpers: UTF-8, safe quoting for messages, nearest names.
#pragma once

#include <cstddef>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace prun {

// ------------------------------------------------------------------- text

struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 1;
  bool valid = true;
};

// Returns the first code point of a non-empty text. Broken UTF-8 gives one invalid byte, so a loop always
// advances.
CodePoint decode_utf8(std::string_view text);
bool valid_utf8(std::string_view text);
// Counts the bytes of the text up to its first broken one; all of them if there is none.
std::size_t valid_utf8_start(std::string_view text);

// Returns the columns that a terminal gives the code point: 0 for combining marks, 2 for wide letters. Tab is
// not handled here.
int display_width(char32_t value);
bool is_control(char32_t value);

std::string_view trim(std::string_view text);
std::vector<std::string_view> split(std::string_view text, char separator);
std::string_view first_line(std::string_view text);
std::string join(std::span<const std::string> parts, std::string_view separator);

// Returns 'text', with control characters and broken UTF-8 written out and long text cut: safe on a terminal.
std::string in_quotes(std::string_view text);
std::string printable(std::string_view text, std::size_t max_code_points);

// Counts insertions, deletions, replacements and swaps of neighbours that turn one text into the other.
std::size_t edit_distance(std::string_view a, std::string_view b);

// Returns the candidate nearest to `name`, or empty if none is near enough to be a likely slip.
std::string nearest(std::string_view name, std::span<const std::string> candidates);
// Returns "; did you mean 'x'?", or empty.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

// Returns a text such as "1.50 GiB".
std::string size_text(double bytes);

// Matches "*" with any run of letters, "?" with one.
bool glob_match(std::string_view pattern, std::string_view text);

// ------------------------------------------------------------------- hub name
// Knows names of a hub of models, as people write them where prun takes a folder.

// Returns what to do where a path that is not there looks like OWNER/NAME of a hub; it is empty for others.
std::string fetch_advice(const std::filesystem::path& missing);

// ------------------------------------------------------------------- format
// Formats as printf does, into a text.

// Formats at most 255 letters.
template <class... Values>
std::string format(const char* pattern, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

// ------------------------------------------------------------------- utc
// Writes points in time as people read them, the same on every host.

// Returns a text such as "2026-11-22T18:28:23Z", or "?" for what is no time.
inline std::string utc_text(std::time_t seconds) {
  std::tm parts{};
  char text[40];
  if (!::gmtime_r(&seconds, &parts) || std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
    return "?";
  return text;
}

}  // namespace prun
