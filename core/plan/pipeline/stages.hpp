// Stages of a pipeline: consecutive layers, divided so that the most expensive stage costs least. Example:
// costs 1, 4, 4, 4, 4, 3 (embedding, layers, head) in two stages: 1+4+4 and 4+4+3.
#pragma once

#include <span>
#include <vector>

#include "plan/pipeline/read_schedule.hpp"
#include "plan/plan.hpp"
#include "plan/work.hpp"

namespace prun {

// Returns the cost of one microbatch by instance, forward and backward.
std::vector<double> chain_costs(const Program& program);

// Instances [first, last).
struct Stage {
  std::int32_t first = 0, last = 0;
  friend bool operator==(const Stage&, const Stage&) = default;
};

// Minimizes the most expensive stage and, among equal divisions, takes one of the most even. Throws bad_input
// if there are fewer instances than stages.
Numbered<Stage> cut_evenly(std::span<const double> costs, std::int64_t stages);

// Takes the numbers of instances from the recipe. Throws bad_input if their number or sum is wrong.
std::vector<Stage> cut_as_requested(std::span<const std::int64_t> counts, std::int64_t instances,
                                    std::int64_t stages);

// How a program runs as a pipeline.
struct PipelineLayout {
  AxisId axis = 0;
  bool split = false;  // weight gradients are a separate function
  PipelineOrder order;
  Numbered<Stage> stages;

  // Returns the coordinate with that stage.
  std::int64_t holder(std::int32_t stage) const;
  // Returns the stage of an instance.
  std::int32_t stage_of(std::int32_t instance) const;
};

// Returns the work of the rank at that coordinate.
Work work_of(const Program& program, const PipelineLayout& layout, std::int64_t coordinate);

}  // namespace prun
