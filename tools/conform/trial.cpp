#include "conform/trial.hpp"

#include <cmath>

#include "plan/pipeline/timing.hpp"

namespace prun {
namespace {

constexpr std::int32_t most_ranks = 4, most_chunks = 4;
// All small numbers, and some that are larger or odd: what a schedule does in its middle shows there alone.
constexpr std::int32_t microbatches[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 17};

// Returns false where the schedule refuses this shape.
bool try_shape(ScheduleInterface& schedule, const ScheduleShape& shape, ScheduleTraits traits,
               const std::string& name) {
  if (!schedule_problem(schedule, shape, name).empty()) return false;
  const PipelineOrder first = read_schedule(schedule, shape, traits, name);
  const PipelineOrder second = read_schedule(schedule, shape, traits, name);
  if (first.calls != second.calls || first.stages != second.stages)
    throw_error(ErrorCode::bad_input, describe(name, shape),
                ": it returned another order the second time; ranks that ask for themselves would disagree");
  if (first.theory && !(std::abs(first.theory->share - bubble_of(first)) <= 1e-9))
    throw_error(ErrorCode::bad_input, describe(name, shape), ": bubble() says ", first.theory->formula, " = ",
                first.theory->share, " of a step, and its order is idle for ", bubble_of(first));
  return true;
}

}  // namespace

std::string try_schedule(ScheduleInterface& schedule, ScheduleTraits traits, const std::string& name) {
  int tried = 0, taken = 0;
  ScheduleShape shape;
  for (shape.ranks = 1; shape.ranks <= most_ranks; ++shape.ranks)
    for (const std::int32_t number : microbatches)
      for (shape.microbatches = number, shape.chunks = 1; shape.chunks <= most_chunks; ++shape.chunks) {
        ++tried;
        taken += try_shape(schedule, shape, traits, name);
      }
  if (taken == 0)
    throw_error(ErrorCode::bad_input, "schedule '", name, "' refuses all of the ", tried, " shapes of up to ",
                most_ranks, " ranks, ", microbatches[std::size(microbatches) - 1], " microbatches and ",
                most_chunks, " chunks");
  return detail::concat(taken, " of ", tried, " small shapes");
}

}  // namespace prun
