// The day that templates take for today.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace prun::chat {

struct Day {
  int year = 0, month = 0, day = 0;  // from 1 on
};

// Reads year-month-day, as 2026-07-31; nothing where it is no day.
std::optional<Day> read_day(std::string_view text);
// Writes it as strftime() does, at midnight. Throws Trouble for what prun does not have.
std::string text_of_day(const Day& day, std::string_view format);

}  // namespace prun::chat
