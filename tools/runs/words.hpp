// Writes numbers in the form that people read in a terminal, and rows of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace prun {

std::string number_word(double value);      // "2.6362", "1.25e-05", "nan"
std::string rate_word(double value);        // "812", "20.2k", "1.53M"
std::string duration_word(double seconds);  // "234 ms", "45s", "12m04s", "3h07m", "2d05h"
std::string percent_word(double share);     // "1.8 %"

// Aligns rows: the first heads the others; every column is as wide as its widest cell.
std::string columns_text(const std::vector<std::vector<std::string>>& rows);

// Draws a curve in `letters` letters, each for the mean of its part: eight heights of a block or, without
// UTF-8, of ASCII.
std::string sparkline(const std::vector<double>& values, std::size_t letters, bool utf8);

}  // namespace prun
