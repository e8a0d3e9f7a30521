// Measures a recipe's kernels and exchanges where they are: within steps of all its ranks.
#pragma once

#include "estimate/costs.hpp"
#include "measure/kernel_bench.hpp"
#include "ranks/rank_answers.hpp"

namespace prun {

// Holds what all ranks measured: each shape of a kernel once; of exchanges the time from when the last member
// is there, and how long the members wait for the last one on average; and what the executor adds on the
// first rank's device.
struct TimedLayout {
  std::vector<KernelTime> kernels;
  std::map<ExactExchange, ExchangeTime> exchanges;
  Overheads overheads;
  std::int64_t steps = 0;  // in which they were timed
};

// Times so many steps or, where these take long, fewer. Where ranks are processes, this one leaves devices
// alone: a GPU that a rank is timed on is no other process' then.
TimedLayout time_layout(const Recipe& recipe, const std::vector<SearchPlace>& places, std::int64_t steps,
                        const std::vector<std::string>& command = {});

// These return the recipe as it is timed, and the question for each of its ranks: see ask_ranks().
Recipe timed_layout(const Recipe& recipe);
MakeQuestion how_long_steps_take(std::int64_t steps);

}  // namespace prun
