// Keeps codes of the weights that products in fp8 multiply (prun/fp8_squares.hpp) for a whole step: each
// instance makes them once, before its first use, and all microbatches multiply them.
#pragma once

#include "program/step_program.hpp"

namespace prun {

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

}  // namespace prun
