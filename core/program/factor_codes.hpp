// Puts codes of squares in the place of a factor of products in fp8 (prun/fp8_squares.hpp), where the rule of
// the op that multiplies it takes them.
#pragma once

#include "program/step_program.hpp"
#include "prun/fp8_squares.hpp"

namespace prun {

OperandShape shape_of_value(const Value& value);

// Says whether an op takes these codes as that operand: it multiplies in fp8 in all layers, and reads what
// they are of there and nowhere else; its rule has the last word.
bool takes_codes(const Program& program, Id op, std::size_t operand, const OperandShape& codes);

// Returns the shape of a rank's part of a value.
OperandShape local_shape_of(const Program& program, Id value);

// Says whether codes of a rank's part of a factor, by columns or by rows, are that part of all its codes.
bool are_cut_alike(const Program& program, Id factor, const OperandShape& codes, int in_dims, bool by_rows);

// Says whether, on each axis, a value is complete, and whole or split along a dimension of its codes.
bool lies_as(const Value& value, const OperandShape& codes);

// Adds a value for codes of another, which lies as that one does.
Id add_codes(Program& program, Id of, const OperandShape& codes, Role role, const char* suffix);

// Has an op read codes as that operand.
void read_codes(Program& program, Id op, std::size_t operand, Id codes);

}  // namespace prun
