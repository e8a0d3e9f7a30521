// Uses printf, with a format chosen by magnitude.
#include "console_format.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "prun/visible.hpp"

namespace prun::console {

namespace {

template <class... Values>
std::string format(const char* pattern, Values... values) {
  std::array<char, 400> text;
  const int size = std::snprintf(text.data(), text.size(), pattern, values...);
  return std::string(text.data(),
                     std::min<std::size_t>(text.size() - 1, size < 0 ? 0u : static_cast<unsigned>(size)));
}

// Writes three significant digits: 1.53, 20.2, 812.
std::string three_digits(double value) { return fixed(value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0); }

}  // namespace

std::string fixed(double value, int digits) { return format("%.*f", digits, value); }

std::string scientific(double value) { return format("%.2e", value); }

std::string scaled(double value) {
  constexpr std::array<const char*, 5> units = {"", "k", "M", "G", "T"};
  std::size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < units.size(); ++unit) value /= 1000;
  return three_digits(value) + units[unit];
}

std::string bytes_text(std::int64_t bytes) {
  constexpr std::array<const char*, 5> units = {" B", " KiB", " MiB", " GiB", " TiB"};
  if (bytes < 1024) return std::to_string(bytes) + units[0];
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1023.5 && unit + 1 < units.size(); ++unit) value /= 1024;
  return three_digits(value) + units[unit];
}

std::string duration(double seconds) {
  if (!(seconds >= 0 && seconds < 1e12)) return "?";
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 60) return format("%llds", whole);
  if (whole < 3600) return format("%lldm%02llds", whole / 60, whole % 60);
  if (whole < 86400) return format("%lldh%02lldm", whole / 3600, whole / 60 % 60);
  return format("%lldd%02lldh", whole / 86400, whole / 3600 % 24);
}

std::string step_time(double seconds) {
  if (seconds < 9.9995) return three_digits(seconds * 1000) + " ms";
  return fixed(seconds, seconds < 99.95 ? 1 : 0) + " s";
}

std::string gradient_norm(double value) {
  const double size = std::abs(value);
  const bool tiny_or_huge = size != 0 && (size < 0.01 || size >= 10000);
  return format(std::isfinite(value) && tiny_or_huge ? "%.2e" : "%.2f", value);
}

std::string printable(std::string_view text, std::string_view indent) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  std::string out;
  for (const char c : visible_lines(text)) {
    out += c;
    if (c == '\n') out += indent;
  }
  return out;
}

std::string first_line(std::string_view text) { return printable(text.substr(0, text.find('\n')), ""); }

std::string progress_bar(double share, std::string_view eta, int columns) {
  constexpr int widest = 60;
  constexpr int narrowest = 5;
  share = std::clamp(std::isfinite(share) ? share : 0.0, 0.0, 1.0);
  const std::string tail = format("] %3d%% | eta ", static_cast<int>(share * 100)) + std::string(eta);
  // The last column stays free: writing to it makes some terminals begin a new line.
  const int cells = std::min(widest, columns - 2 - static_cast<int>(tail.size()));
  if (cells < narrowest) return "";
  const int done = static_cast<int>(share * cells);
  std::string bar = "[" + std::string(static_cast<std::size_t>(done), '=');
  if (done < cells) bar += '>';
  bar.resize(static_cast<std::size_t>(cells) + 1, ' ');
  return bar + tail;
}

}  // namespace prun::console
