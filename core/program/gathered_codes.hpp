// Has products in fp8 read codes of weights that ranks keep in parts (prun/fp8_squares.hpp): codes by rows
// come together in place of the weight, and backward turns them.
#pragma once

#include <optional>

#include "program/step_program.hpp"
#include "prun/fp8_squares.hpp"

namespace prun {

// Returns the matrix whose columns are the codes by rows of a rank's part of a weight, where products in fp8
// read it and ranks can have codes of their parts. Throws `unsupported` where another op reads the weight as
// it is.
std::optional<Fp8Squares> gathered_squares_of(const Program& program, Id weight);

// Has all products that read the weight read its codes by rows, which lie as the weight does; returns these.
// They are a view of bytes that the caller places.
Id read_gathered_codes(Program& program, Id weight);

}  // namespace prun
