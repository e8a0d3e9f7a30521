// Standard output of a command: what was printed has arrived, or the command has failed; how wide it is.
#pragma once

#include <cstddef>

namespace prun {

// To be called first. A reader that goes away shows up as an error of the write, not as our death, and a
// stream that the caller closed cannot become some file that is opened later.
void prepare_output();

// To be called last. Throws storage when something printed was lost; a reader that had enough is no loss.
void finish_output();

// Of the terminal; where it is none, as many as COLUMNS says, or `otherwise`.
std::size_t columns(std::size_t otherwise);

}  // namespace prun
