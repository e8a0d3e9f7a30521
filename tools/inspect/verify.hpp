// Proves that a layout computes what one rank computes: the recipe and its one-rank equivalent are trained on
// the same samples, and everything is compared.
#pragma once

#include <cmath>
#include <optional>

#include "ranks/rank_answers.hpp"

namespace prun {

struct Difference {
  double value = 0;
  std::string where;   // such as "step 3", "block.1.qkv.weight on rank 2"
  double allowed = 1;  // is the bound there

  // Keeps the larger one, as a part of what is allowed.
  void take(double candidate, const std::string& place, double bound = 1);
  bool is_allowed() const { return std::isfinite(value) && value <= allowed; }
};

// Holds the largest differences, of one rank or of all.
struct LayoutDifferences {
  Difference loss;       // relative
  Difference grad_norm;  // relative
  Difference gradient;   // of step 1, against the norm of the tensor's gradient, or a part of all gradients'
  Difference parameter;  // absolute, after the last step
  Difference unequal;    // counts whole numbers of step 1 that are not those of one rank

  std::vector<Difference*> all() { return {&loss, &grad_norm, &gradient, &parameter, &unequal}; }
  std::vector<const Difference*> all() const { return {&loss, &grad_norm, &gradient, &parameter, &unequal}; }
};

struct VerifyOptions {
  std::int64_t steps = 3;
  std::optional<double> bound;     // otherwise by the precision, or by how far roundings of one rank come
  std::vector<std::string> exact;  // names values of whole numbers, by patterns
};

struct LayoutVerdict : LayoutDifferences {
  std::int64_t ranks = 1;
  std::string reference = "one";  // or the ranks of axes along which a strategy's state varies
  std::int64_t steps = 0;
  double bound = 0;
  bool compares_numbers = false;
  bool keeps_gradients = true;

  // In fp64 everything must be within the bound, which may be larger for a step or a tensor: by how far the
  // same number of one rank moves if its parameters begin some roundings away. In narrower formats losses
  // and the first gradients must be.
  bool equal() const;
  bool exact_arithmetic = false;
};

// Returns the part of the norm of all gradients that a tensor's gradient is compared by where its own norm is
// smaller, as that of queries of equal keys: a rounding of the coarsest format that gradients pass through,
// by the bound. A difference of one rounding of all is then at the bound, whatever the format; rounding is
// all that such a tensor's gradient may be.
double least_of_all_gradients(const Recipe& recipe, const VerifyOptions& options);

// Returns the recipe for the same samples, microbatch by microbatch, on one rank; `micro` is that of all
// ranks together. `delays` are those of the layout's stages, which the one rank does not have. Axes that are
// named in `kept` keep their extents.
Recipe one_rank_equivalent(const Recipe& recipe, std::int64_t micro, const Delays& delays = {},
                           const std::vector<std::string>& kept = {});

// Makes each rank's question: the rank is compared with one that its process has trained before. Where a
// strategy's state varies along an axis, it is compared with as many as the axis has.
MakeQuestion compare_with_one_rank(const Recipe& recipe, const std::vector<SearchPlace>& places,
                                   const VerifyOptions& options);

// The precision is the recipe's. `command` is that of ask_ranks().
LayoutVerdict verify_layout(const Recipe& recipe, const std::vector<SearchPlace>& places,
                            const VerifyOptions& options, const std::vector<std::string>& command = {});
inline LayoutVerdict verify_layout(const Recipe& recipe, const std::vector<SearchPlace>& places,
                                   std::int64_t steps) {
  return verify_layout(recipe, places, VerifyOptions{.steps = steps, .bound = {}, .exact = {}});
}

std::string to_text(const LayoutVerdict& verdict);

}  // namespace prun
