// Counts what becomes of the factors of products in fp8 (prun/fp8_blocks.hpp) in some steps: how many of a
// factor's numbers become zero, and which scales its blocks have, over all ranks and microbatches.
//
// All counts lie in two values, with a row for each factor and layer: sums, and maxima. Ranks of every axis
// add theirs. So counts of what several ranks have alike are multiples of what one would count, as are those
// of a weight by microbatches: shares of them are the same in every layout.
#pragma once

#include <string>
#include <vector>

#include "program/step_program.hpp"

namespace prun {

// Adds the counting to a placed program, in which it is decided which ops multiply in fp8. A step counts
// where the host stages a number other than 0 for it. A factor that several products read is counted once,
// and where forward has it, there.
void count_in_fp8(Program& program);

// Describes a factor that is counted, by the first product that reads it: "block.fp8.mlp.up.input".
struct CountedFactor {
  std::string name;
  std::int64_t place = 0, layers = 1;  // its rows among the counts
};
// Returns all factors, in the order of their names.
std::vector<CountedFactor> counted_factors(const Program& program);

// Holds staging buffers; all are none in a program that does not count.
struct StagedFp8Counts {
  Id on = none;                    // goes in: whether the step counts
  Id counts = none, peaks = none;  // come out, [place, 3] each: see kernels/fp8_counts/fp8_counts.cpp
};
StagedFp8Counts staged_fp8_counts(const Program& program);

}  // namespace prun
