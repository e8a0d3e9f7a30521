// Writes numbers and lines as a person reads them. The functions are pure; nothing here knows of a terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace prun::console {

std::string fixed(double value, int digits);  // "3.2141", "nan"
std::string scaled(double value);             // "812", "20.2k", "1.53M"
std::string bytes_text(std::int64_t bytes);   // "512 B", "12.3 GiB"
std::string duration(double seconds);         // "45s", "12m04s", "3h07m", "2d05h"
std::string step_time(double seconds);        // "4.21 ms", "812 ms", "12.3 s"
std::string scientific(double value);         // "3.00e-04"
std::string gradient_norm(double value);      // "0.98", "1.25e-05"

// A line end is followed by `indent`; a character that is no letter is written out, as prun/visible.hpp says:
// text of others cannot move the cursor.
std::string printable(std::string_view text, std::string_view indent);
std::string first_line(std::string_view text);

// Returns "[=====>     ]  42% | eta 12m04s", in less than `columns` letters; it is empty when that is too
// narrow to say anything.
std::string progress_bar(double share, std::string_view eta, int columns);

}  // namespace prun::console
