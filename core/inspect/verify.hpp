// The proof that a layout computes what one rank computes: the recipe and its one-rank equivalent are trained
// on the same samples, and everything is compared.
#pragma once

#include "train/trainer.hpp"

namespace prun {

struct Difference {
  double value = 0;
  std::string where;  // "step 3", "block.1.qkv.weight on rank 2"

  void take(double candidate, const std::string& place);
};

struct LayoutVerdict {
  std::int64_t ranks = 1;
  std::int64_t steps = 0;
  double bound = 0;
  Difference loss;       // relative
  Difference grad_norm;  // relative
  Difference gradient;   // of step 1, against the norm of the tensor's gradient
  Difference parameter;  // after the last step, absolute

  // fp64: everything within the bound. Narrower formats: losses and the first gradients.
  bool equal() const;
  bool exact_arithmetic = false;
};

// The same samples, microbatch by microbatch, on one rank; `micro`: of all ranks together.
Recipe one_rank_equivalent(const Recipe& recipe, std::int64_t micro);

// Ranks are threads of this process, on the CPU. The precision is the recipe's.
LayoutVerdict verify_layout(const Recipe& recipe, const std::vector<SearchPlace>& places, std::int64_t steps);

std::string to_text(const LayoutVerdict& verdict);

}  // namespace prun
