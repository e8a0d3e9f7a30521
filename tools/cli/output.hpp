// Sends text to standard output and standard error: text of others cannot move the cursor there, and what was
// printed has arrived, or the command has failed.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string_view>

namespace prun {

// Must be called first. From then on `stdout` and `stderr` make visible all but letters, tabs and line ends
// (prun/visible.hpp), whichever code prints. A reader that goes away shows up as an error of the write, not
// as our death, and a stream that the caller closed cannot become some file that is opened later.
void prepare_output();

// Prints sequences of our own that move the cursor; `to` is stdout or stderr.
void print_as_it_is(std::string_view text, std::FILE* to);

// Prints, on standard output, text that a model generates. It is data, and goes as it is into files and
// pipes; a terminal gets it like any other text.
void print_generated(std::string_view text);

// Must be called last. Throws storage when printed text was lost; a reader that had enough is no loss.
void finish_output();

// Returns the columns of the terminal; without one, as many as COLUMNS says, or `otherwise`.
std::size_t columns(std::size_t otherwise);

// Says whether the locale's letters are UTF-8.
bool speaks_utf8();

}  // namespace prun
