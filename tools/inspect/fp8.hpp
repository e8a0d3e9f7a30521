// Says what a program has in fp8: which share of products, and what is kept, cached and gathered as codes.
#pragma once

#include "program/step_program.hpp"

namespace prun {

// States what forward saves quantized, of one repetition of a segment on one rank.
struct SavedInCodes {
  std::int64_t values = 0, bytes = 0, bytes_before = 0;
};
SavedInCodes saved_in_codes(const Program& program, Id segment);

// States, of one repetition of a segment on one rank, how many of the products in fp8 of a weight multiply
// kept codes, and their bytes; and whether these come together from ranks' parts for each use.
struct WeightCodes {
  std::int64_t products = 0, of_codes = 0, bytes = 0;
  bool come_together = false;
};
WeightCodes weight_codes(const Program& program, Id segment);

// States, of one repetition of a segment on one rank, how many gathers of activations there are, and how many
// of them are of codes.
struct GatheredInputs {
  std::int64_t gathers = 0, in_codes = 0;
};
GatheredInputs gathered_inputs(const Program& program, Id segment);

// Returns lines of `prun plan`; none if nothing is in fp8.
std::string fp8_text(const Program& program);

}  // namespace prun
