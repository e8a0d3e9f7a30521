#include "runs/words.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/text.hpp"

namespace prun {
namespace {

std::size_t width_of(std::string_view text) {
  std::size_t width = 0;
  while (!text.empty()) {
    const CodePoint letter = decode_utf8(text);
    width += static_cast<std::size_t>(display_width(letter.value));
    text.remove_prefix(letter.bytes);
  }
  return width;
}

}  // namespace

std::string number_word(double value) {
  const double size = std::abs(value);
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  return format(size != 0 && (size < 0.001 || size >= 1e5) ? "%.3e" : "%.4f", value);
}

std::string rate_word(double value) {
  constexpr std::array<const char*, 5> units = {"", "k", "M", "G", "T"};
  std::size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < units.size(); ++unit) value /= 1000;
  return format(value < 9.995 ? "%.2f" : value < 99.95 ? "%.1f" : "%.0f", value) + units[unit];
}

std::string duration_word(double seconds) {
  if (!(seconds < 1e12)) return "?";
  if (seconds < 1) return format("%.0f ms", std::max(0.0, seconds) * 1e3);
  const auto whole = static_cast<long long>(seconds);
  if (whole < 60) return format("%llds", whole);
  if (whole < 3600) return format("%lldm%02llds", whole / 60, whole % 60);
  if (whole < 86400) return format("%lldh%02lldm", whole / 3600, whole / 60 % 60);
  return format("%lldd%02lldh", whole / 86400, whole / 3600 % 24);
}

std::string percent_word(double share) { return format("%.1f %%", 100 * share); }

std::string columns_text(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const std::vector<std::string>& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i == widths.size()) widths.push_back(0);
      widths[i] = std::max(widths[i], width_of(row[i]));
    }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(widths[i] - width_of(row[i]) + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string sparkline(const std::vector<double>& values, std::size_t letters, bool utf8) {
  constexpr std::array<const char*, 8> blocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::array<const char*, 8> ascii = {"_", ".", "-", "=", "o", "+", "*", "#"};
  letters = std::min(letters, values.size());
  std::vector<double> means;
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (std::size_t letter = 0; letter < letters; ++letter) {
    const std::size_t begin = letter * values.size() / letters, end = (letter + 1) * values.size() / letters;
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i) sum += values[i];
    means.push_back(sum / static_cast<double>(end - begin));
    if (!std::isfinite(means.back())) continue;
    low = std::min(low, means.back());
    high = std::max(high, means.back());
  }
  std::string text;
  for (const double mean : means) {
    const double share = high > low ? (mean - low) / (high - low) : 0;
    if (!std::isfinite(mean))
      text += '?';
    else
      text += (utf8 ? blocks : ascii)[static_cast<std::size_t>(std::lround(share * 7))];
  }
  return text;
}

}  // namespace prun
