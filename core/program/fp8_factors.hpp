// Says which operands an op multiplies in fp8, and in which blocks (prun/fp8_blocks.hpp).
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "program/step_program.hpp"
#include "prun/fp8_blocks.hpp"

namespace prun {

// Describes a value as a matrix that is multiplied.
struct Fp8Factor {
  Id value = none;
  Fp8Blocks blocks = Fp8Blocks::rows;
  std::int64_t in_dims = 1;  // number of its last dimensions that are a row
  Id weight = none;          // parameter of the product
  friend auto key(const Fp8Factor& f) { return std::tuple(f.value, f.blocks, f.in_dims); }
};

// Returns the factors of an op that multiplies in fp8. Codes of a factor count as the one in squares.
std::vector<Fp8Factor> fp8_factors_of(const Program& program, const Op& op);

}  // namespace prun
