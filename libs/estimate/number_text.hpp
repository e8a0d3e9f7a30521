// Writes numbers as people read them: three digits, and the unit that fits, since what
// is predicted is known no better. Example: 0.00085 s is "850 us". base/text.hpp has sizes.
#pragma once

#include <string>

namespace prun {

// Returns a text such as "850 us", "12.3 ms", "4 s", "23.3 minutes" or "5.21 hours".
std::string time_text(double seconds, int digits = 3);
// Returns a text such as "812", "8.03 G".
std::string count_text(double count);
// Returns a number of three digits, or a whole one with commas: "0.314", "12.4", "8,245".
std::string rate_text(double number);

}  // namespace prun
