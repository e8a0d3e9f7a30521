// Turns what a step has counted of factors in fp8 (program/fp8_counts.hpp) into tallies, and says where too
// much of one has become zero.
#pragma once

#include <string>
#include <vector>

#include "program/fp8_counts.hpp"
#include "recipe/recipe.hpp"
#include "train/loop/step_tally.hpp"

namespace prun {

class Fp8Counting {
 public:
  Fp8Counting(const Program& program, const Recipe& recipe);

  const StagedFp8Counts& staged() const { return staged_; }
  bool counts_in(std::int64_t step) const { return staged_.on != none && step % every_ == 0; }
  // Returns, by factor, shares of its numbers that are not zero: those that become zero ("...flushed.share")
  // and those that become subnormal; the largest magnitude; and the largest and the smallest exponent of a
  // scale, -127 and 128 of a layer that counts nothing.
  std::vector<StepTally> tallies(const double* counts, const double* peaks) const;

 private:
  const StagedFp8Counts staged_;
  const std::vector<CountedFactor> factors_;
  const std::int64_t every_;
};

// Words a warning, once in a run.
class FlushedWarning {
 public:
  explicit FlushedWarning(double bound) : bound_(bound) {}
  // Returns nothing where no share is beyond the bound, or it was said before.
  std::string text(std::int64_t step, const std::vector<StepTally>& tallies);

 private:
  const double bound_;
  bool said_ = false;
};

}  // namespace prun
