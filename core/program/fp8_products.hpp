// Decides which ops multiply in fp8 (prun/fp8_blocks.hpp). A program is edited once it is placed, so that it
// is known what ranks share out.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "program/step_program.hpp"
#include "prun/fp8_blocks.hpp"

namespace prun {

// ------------------------------------------------------------------- fp8 products

// Counts layers at either end of the model whose products stay as they are: repetitions of segments between
// the first and the last, of those that otherwise have a product in fp8. Products before such first layers,
// or behind such last ones, stay as well.
struct LayersInCompute {
  std::int64_t first = 0, last = 0;
};

// Sets fp8 in all ops that can multiply so and whose operands come in blocks. Throws `unsupported` where
// ranks would have parts of a block or an op cannot leave layers out, `bad_input` where no op or no layer is
// left.
void multiply_in_fp8(Program& program, LayersInCompute layers = {});

// Returns the share of the layers of its segment in which an op multiplies in fp8.
double layers_in_fp8(const Program& program, Id op);

// Returns the share of FLOPs done in fp8, among those of all ops that can multiply so.
double share_in_fp8(const Program& program);

// ------------------------------------------------------------------- fp8 factors
// Says which operands an op multiplies in fp8, and in which blocks (prun/fp8_blocks.hpp).

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

// ------------------------------------------------------------------- fp8 counts
// Counts what becomes of the factors of products in fp8 (prun/fp8_blocks.hpp) in some steps: how many of a
// factor's numbers become zero, and which scales its blocks have, over all ranks and microbatches.
//
// All counts lie in two values, with a row for each factor and layer: sums, and maxima. Ranks of every axis
// add theirs. So counts of what several ranks have alike are multiples of what one would count, as are those
// of a weight by microbatches: shares of them are the same in every layout.

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
