// Writes fp8 numbers with their factors where bf16 would be stored or sent: what backward reads only for
// products in fp8, weights for a step, and parameters that ranks gather. Example: a linear op in fp8 reads
// its input once, so the input is kept in a byte an element instead of two.
#pragma once

#include <optional>

#include "program/step_program.hpp"
#include "prun/fp8_squares.hpp"

namespace prun {

// ------------------------------------------------------------------- factor codes
// Puts codes of squares in the place of a factor of products in fp8 (prun/fp8_squares.hpp), where the rule of
// the op that multiplies it takes them.

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

// ------------------------------------------------------------------- saved codes
// Keeps what backward reads of forward for products in fp8 alone as the codes that it multiplies
// (prun/fp8_squares.hpp): forward makes them, and the value itself need not outlive it.

// Changes a placed program with backward, in which strategies have decided what is computed again. A value
// stays as it is if an op of backward that does not take codes reads it, or if ranks share out a dimension
// that the codes do not have. The numbers a step computes stay the same to the last bit.
void save_in_codes(Program& program);

// States what is kept in codes, of one repetition of a segment on one rank.
struct SavedInCodes {
  std::int64_t values = 0, bytes = 0, bytes_before = 0;
};
SavedInCodes saved_in_codes(const Program& program, Id segment);

// ------------------------------------------------------------------- weight codes
// Keeps codes of the weights that products in fp8 multiply (prun/fp8_squares.hpp) for a whole step: each
// instance makes them once, before its first use, and all microbatches multiply them.

// Where ranks keep weights in parts and gather them for each use, codes are what is gathered, and this pass
// finds them there (placement/pack.cpp).
//
// Changes a placed program in which strategies have decided what is computed again and where values lie.
// Forward takes codes of a weight by rows, the gradient of its input codes by columns. The numbers a step
// computes stay the same to the last bit. A product stays as it is if ranks share out a dimension that the
// codes do not have. Throws `unsupported` where ranks have a weight for each use alone.
void keep_weight_codes(Program& program);

// States, of one repetition of a segment on one rank, how many of the products in fp8 of a weight multiply
// kept codes, and their bytes; and whether these come together from ranks' parts for each use.
struct WeightCodes {
  std::int64_t products = 0, of_codes = 0, bytes = 0;
  bool come_together = false;
};
WeightCodes weight_codes(const Program& program, Id segment);

// ------------------------------------------------------------------- gathered codes
// Has products in fp8 read codes of weights that ranks keep in parts (prun/fp8_squares.hpp): codes by rows
// come together in place of the weight, and backward turns them.

// Returns the matrix whose columns are the codes by rows of a rank's part of a weight, where products in fp8
// read it and ranks can have codes of their parts. Throws `unsupported` where another op reads the weight as
// it is.
std::optional<Fp8Squares> gathered_squares_of(const Program& program, Id weight);

// Has all products that read the weight read its codes by rows, which lie as the weight does; returns these.
// They are a view of bytes that the caller places.
Id read_gathered_codes(Program& program, Id weight);

}  // namespace prun
