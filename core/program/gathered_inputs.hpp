// Has what ranks gather for products in fp8 alone travel in codes, as tensor parallelism gathers the input of
// a product where ranks share out sequences between layers.
//
// An input is rounded to codes where it lies, decoded behind the gather, and rounded again by the product,
// which changes no number: a code times its scale is a number of every type of values, and what is rounded
// once stays as it is. So products know nothing of it, and bits are those of a gather of numbers.
#pragma once

#include "program/step_program.hpp"

namespace prun {

// Changes a placed program in which strategies have decided what is computed again. A gather stays as it is
// where anything but products in fp8 reads its result, or these in blocks of different kinds, or in squares
// that ranks' parts cut.
void gather_inputs_in_codes(Program& program);

// States, of one repetition of a segment on one rank, how many gathers of activations there are, and how many
// of them are of codes.
struct GatheredInputs {
  std::int64_t gathers = 0, in_codes = 0;
};
GatheredInputs gathered_inputs(const Program& program, Id segment);

}  // namespace prun
