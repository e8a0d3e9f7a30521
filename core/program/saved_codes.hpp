// Keeps what backward reads of forward for products in fp8 alone as the codes that it multiplies
// (prun/fp8_squares.hpp): forward makes them, and the value itself need not outlive it.
#pragma once

#include "program/step_program.hpp"

namespace prun {

// Changes a placed program with backward, in which strategies have decided what is computed again. A value
// stays as it is if an op of backward that does not take codes reads it, or if ranks share out a dimension
// that the codes do not have. The numbers a step computes stay the same to the last bit.
void save_in_codes(Program& program);

// States what is kept in codes, of one repetition of a segment on one rank.
struct SavedInCodes {
  std::int64_t values = 0, bytes = 0, bytes_before = 0;
};
SavedInCodes saved_in_codes(const Program& program, Id segment);

}  // namespace prun
