// Describes the stages of a pipeline: the chain of instances is cut into consecutive pieces, some of which a
// rank holds.
#pragma once

#include <span>
#include <vector>

#include "plan/pipeline/read_schedule.hpp"
#include "plan/plan.hpp"
#include "plan/work.hpp"

namespace prun {

// Returns what one microbatch costs each instance of the chain, forward and backward.
std::vector<double> chain_costs(const Program& program);

// Covers instances [first, last) of the chain.
struct Stage {
  std::int32_t first = 0, last = 0;
  friend bool operator==(const Stage&, const Stage&) = default;
};

// Cuts so that the costliest stage costs least, and among those cuts one of the most even. Throws bad_input
// where there are fewer instances than stages.
Numbered<Stage> cut_evenly(std::span<const double> costs, std::int64_t stages);

// Makes stages of the stated numbers of instances. Throws bad_input where their number or sum is another.
std::vector<Stage> cut_as_requested(std::span<const std::int64_t> counts, std::int64_t instances,
                                    std::int64_t stages);

// Describes how a program runs as a pipeline.
struct PipelineLayout {
  AxisId axis = 0;
  bool split = false;  // whether backward is two functions
  PipelineOrder order;
  Numbered<Stage> stages;

  // Returns the rank of the axis that has a stage.
  std::int64_t holder(std::int32_t stage) const;
  // Returns the stage that an instance of the chain belongs to.
  std::int32_t stage_of(std::int32_t instance) const;
};

// Returns what the rank at a coordinate of the axis does.
Work work_of(const Program& program, const PipelineLayout& layout, std::int64_t coordinate);

}  // namespace prun
