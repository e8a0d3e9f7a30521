// The stages of a pipeline: the chain of instances cut into consecutive pieces, and which of them a rank
// holds.
#pragma once

#include <span>
#include <vector>

#include "plan/pipeline/read_schedule.hpp"
#include "plan/plan.hpp"
#include "plan/work.hpp"

namespace prun {

// What one microbatch costs each instance of the chain, forward and backward.
std::vector<double> chain_costs(const Program& program);

// Instances [first, last) of the chain.
struct Stage {
  std::int32_t first = 0, last = 0;
  friend bool operator==(const Stage&, const Stage&) = default;
};

// Cuts so that the costliest stage costs least, and among those cuts one of the most even. Throws bad_input
// where there are fewer instances than stages.
Numbered<Stage> cut_evenly(std::span<const double> costs, std::int64_t stages);

// Stages of so many instances each. Throws bad_input where their number or sum is another.
std::vector<Stage> cut_as_told(std::span<const std::int64_t> counts, std::int64_t instances,
                               std::int64_t stages);

// How a program runs as a pipeline.
struct PipelineLayout {
  AxisId axis = 0;
  bool split = false;  // backward is two functions
  PipelineOrder order;
  Numbered<Stage> stages;

  // Which rank of the axis has a stage.
  std::int64_t holder(std::int32_t stage) const;
  // The stage that an instance of the chain belongs to.
  std::int32_t stage_of(std::int32_t instance) const;
};

// What the rank at a coordinate of the axis does.
Work work_of(const Program& program, const PipelineLayout& layout, std::int64_t coordinate);

}  // namespace prun
