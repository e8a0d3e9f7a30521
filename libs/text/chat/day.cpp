#include "chat/day.hpp"

#include <array>
#include <charconv>
#include <chrono>

#include "chat/functions.hpp"

namespace prun::chat {
namespace {

constexpr std::array<const char*, 12> months = {"January",   "February", "March",    "April",
                                                "May",       "June",     "July",     "August",
                                                "September", "October",  "November", "December"};
constexpr std::array<const char*, 7> weekdays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                 "Thursday", "Friday", "Saturday"};

std::chrono::year_month_day date_of(const Day& day) {
  return {std::chrono::year(day.year), std::chrono::month(static_cast<unsigned>(day.month)),
          std::chrono::day(static_cast<unsigned>(day.day))};
}

std::string in_digits(int number, std::size_t digits) {
  std::string text = std::to_string(number);
  return text.size() < digits ? std::string(digits - text.size(), '0') + text : text;
}

std::string part_of(const Day& day, char letter) {
  const std::string month = months[static_cast<std::size_t>(day.month - 1)];
  const std::string weekday = weekdays[std::chrono::weekday(date_of(day)).c_encoding()];
  switch (letter) {
    case 'Y': return in_digits(day.year, 4);
    case 'y': return in_digits(day.year % 100, 2);
    case 'm': return in_digits(day.month, 2);
    case 'd': return in_digits(day.day, 2);
    case 'e': return std::string(day.day < 10 ? 1 : 0, ' ') + std::to_string(day.day);
    case 'B': return month;
    case 'b':
    case 'h': return month.substr(0, 3);
    case 'A': return weekday;
    case 'a': return weekday.substr(0, 3);
    case 'F': return part_of(day, 'Y') + "-" + part_of(day, 'm') + "-" + part_of(day, 'd');
    case 'H':
    case 'M':
    case 'S': return "00";
    case '%': return "%";
    default: break;
  }
  throw Trouble{std::string("strftime_now of '%") + letter + "' is not something that prun has in templates"};
}

}  // namespace

std::optional<Day> read_day(std::string_view text) {
  Day day;
  const char *at = text.data(), *const end = at + text.size();
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return {};
  const auto read = [&](std::size_t from, std::size_t digits, int& to) {
    return std::from_chars(at + from, at + from + digits, to).ptr == at + from + digits;
  };
  if (!read(0, 4, day.year) || !read(5, 2, day.month) || !read(8, 2, day.day) || end != at + 10) return {};
  if (day.year < 1 || day.month < 1 || day.day < 1 || !date_of(day).ok()) return {};
  return day;
}

std::string text_of_day(const Day& day, std::string_view format) {
  std::string text;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      text += format[i];
      continue;
    }
    const bool bare = format[++i] == '-' && i + 1 < format.size();  // without what stands in front
    std::string part = part_of(day, format[bare ? ++i : i]);
    text += bare ? part.substr(std::min(part.find_first_not_of("0 "), part.size() - 1)) : part;
  }
  return text;
}

}  // namespace prun::chat
