#include "estimate/number_text.hpp"

#include <algorithm>
#include <cmath>

#include "base/text.hpp"

namespace prun {
namespace {

// Writes a positive number rounded to so many digits, without an exponent or zeros at the end.
std::string rounded_text(double number, int digits) {
  const auto places_of = [digits](double of) {
    return digits - 1 - static_cast<int>(std::floor(std::log10(of)));
  };
  const double scale = std::pow(10, places_of(number)), rounded = std::round(number * scale) / scale;
  const int places = std::max(0, places_of(rounded));
  std::string text = format("%.*f", places, rounded);
  if (places == 0) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

std::string time_text(double seconds, int digits) {
  if (!(seconds > 0)) return "0 ms";
  constexpr struct {
    double below, unit;
    const char* name;
  } units[] = {{1e-3, 1e-6, " us"},    {1, 1e-3, " ms"},         {120, 1, " s"},
               {7200, 60, " minutes"}, {172800, 3600, " hours"}, {1e300, 86400, " days"}};
  for (const auto& [below, unit, name] : units)
    if (seconds < below) return rounded_text(seconds / unit, digits) + name;
  return "for ever";
}

std::string count_text(double count) {
  constexpr const char* units[] = {"", " k", " M", " G", " T", " P"};
  int unit = 0;
  for (; count >= 1000 && unit < 5; ++unit) count /= 1000;
  return format(unit ? "%.2f%s" : "%.0f%s", count, units[unit]);
}

std::string rate_text(double number) {
  if (!(number > 0 && number < 1e18)) return number > 0 ? "inf" : "0";
  if (number < 99.95) return rounded_text(number, 3);
  std::string text = std::to_string(std::llround(number));
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

}  // namespace prun
