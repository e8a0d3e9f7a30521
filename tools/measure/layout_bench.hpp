// Measures a recipe's kernels and exchanges where they are: within steps of all its ranks.
#pragma once

#include "measure/kernel_timer.hpp"
#include "train/loop/rank_answers.hpp"

namespace prun {

// Times the kernels of all ranks, each shape once, in so many steps or, where these take long, in fewer: it
// says how many. Exchanges are added to `exchanges`: the time of an
// exchange from when the last member is there, and how long the members wait for the last one on average.
std::vector<KernelTime> time_layout(const Recipe& recipe, const std::vector<SearchPlace>& places,
                                    std::int64_t& steps, std::map<ExactExchange, ExchangeTime>& exchanges,
                                    const std::vector<std::string>& command = {});

// These return the recipe as it is timed, and the question for each of its ranks: see ask_ranks().
Recipe timed_layout(const Recipe& recipe);
MakeQuestion how_long_steps_take(std::int64_t steps);

}  // namespace prun
