#include "plan/pipeline/overlap.hpp"

#include <algorithm>
#include <map>

#include "base/narrow.hpp"
#include "plan/pipeline/timing.hpp"

namespace prun {
namespace {

constexpr PassCosts unit_costs{1, 1, 1, 0};
// In forwards: communication between ranks after a step takes less than one.
constexpr double until_known = 1, until_told = 3;

// A rank's calls of several steps in a row.
class RankRow {
 public:
  RankRow(const PipelineOrder& step, const PipelineOrder& row, Delay delay, std::int32_t rank,
          const std::string& title)
      : calls_(step.calls[rank]),
        row_(row.calls[rank]),
        microbatches_(step.shape.microbatches),
        delay_(delay),
        rank_(rank),
        title_(title) {
    for (std::size_t i = 0; i < calls_.size(); ++i) number_[key_of(calls_[i], 0)] = narrow<std::int32_t>(i);
  }

  std::int32_t step_of(std::size_t at) const { return row_[at].microbatch / microbatches_; }
  // Returns the position of a step's first call.
  std::size_t first_of(std::int32_t step) const {
    std::size_t at = 0;
    while (step_of(at) != step) ++at;
    return at;
  }
  // Returns the position of a step's last backward.
  std::size_t last_of(std::int32_t step) const {
    std::size_t at = row_.size() - 1;
    while (step_of(at) != step) --at;
    return at;
  }

  std::vector<PeriodPass> period() const {
    check_steps_are_alike();
    std::vector<PeriodPass> passes = period_of(1, 1);
    if (period_of(2, 1) != passes) refuse("in a row of steps, the second one runs otherwise than the third");
    if (passes.size() != calls_.size())
      refuse("in a row of steps, one goes on while more than one begins behind it");
    check_slots(passes);
    return passes;
  }

  // Returns the period of a stage with that delay, from that step on.
  std::vector<PeriodPass> period_with(std::int32_t delay, std::int32_t step) const {
    check_steps_are_alike();
    std::vector<PeriodPass> passes = period_of(step, delay);
    if (passes != period_of(step + 1, delay) || passes.size() != calls_.size() ||
        passes != std::vector<PeriodPass>{{0, 0}, {1, delay}})
      refuse("in a row of steps, its stage does not go through a forward and the backward of ", delay,
             " steps before in turn");
    return passes;
  }

  // Returns the place before the first call that begins no earlier, among those after the last pass of a
  // step.
  PeriodPlace place_from(const std::vector<CallTime>& times, std::int32_t step, double time) const {
    std::size_t at = last_of(step) + 1;
    while (times[at].begin < time) ++at;
    std::int32_t round = step_of(at);
    for (std::size_t before = 0; before <= at; ++before) round = std::max(round, step_of(before));
    const auto place = narrow<std::int32_t>(at - first_of(round));
    if (place == 0) return {narrow<std::int32_t>(calls_.size()), round - 1 - step};
    return {place, round - step};
  }

 private:
  using Key = std::tuple<Pass, std::int32_t, std::int32_t>;

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    throw_error(ErrorCode::bad_input, title_, ": rank ", rank_, ": ", parts...,
                "; a schedule with the trait delay=", delay_ == Delay::one ? "1" : "stages",
                " repeats itself step by step");
  }

  Key key_of(const ScheduleCall& call, std::int32_t step) const {
    return {call.pass, call.chunk, call.microbatch - step * microbatches_};
  }
  std::int32_t number_at(std::size_t at) const { return number_.at(key_of(row_[at], step_of(at))); }

  void check_steps_are_alike() const {
    Numbered<std::int32_t> next(row_.size(), 0);
    for (std::size_t at = 0; at < row_.size(); ++at)
      if (number_at(at) != next[step_of(at)]++)
        refuse("in a row of steps, ", describe(row_[at]), " does not stand where it does in a step alone");
  }

  std::vector<PeriodPass> period_of(std::int32_t step, std::int32_t most_behind) const {
    std::vector<PeriodPass> passes;
    for (std::size_t at = first_of(step); at < first_of(step + 1); ++at) {
      const std::int32_t behind = step - step_of(at);
      if (behind < 0 || behind > most_behind)
        refuse("in a row of steps, ", describe(row_[at]),
               " stands among passes of a step that does not follow");
      passes.push_back({number_at(at), behind});
    }
    return passes;
  }

  // Checks that a microbatch's memory is free for the one of the same number a step later.
  void check_slots(const std::vector<PeriodPass>& passes) const {
    std::map<std::pair<std::int32_t, std::int32_t>, bool> begun;
    for (const PeriodPass& pass : passes) {
      const ScheduleCall& call = calls_[static_cast<std::size_t>(pass.call)];
      bool& own = begun[{call.chunk, call.microbatch}];
      if (pass.behind > 0 && own)
        refuse("microbatch ", call.microbatch, " of two steps is at work at a time");
      own = own || pass.behind == 0;
    }
  }

  const std::vector<ScheduleCall>&calls_, &row_;
  const std::int32_t microbatches_;
  const Delay delay_;
  const std::int32_t rank_;
  const std::string& title_;
  std::map<Key, std::int32_t> number_;
};

// Returns enough steps that the middle ones are unaffected by both ends.
std::int32_t row_of_stages(std::int32_t ranks) { return 4 * ranks + 4; }

// Returns the first pass of a period that begins no earlier.
std::int32_t first_from(const std::vector<CallTime>& times, std::size_t begin, std::size_t end, double time) {
  std::size_t at = begin;
  while (at < end && times[at].begin < time) ++at;
  return narrow<std::int32_t>(at - begin);
}

}  // namespace

std::int32_t steps_in_a_row(Delay delay, const ScheduleShape& shape) {
  return delay == Delay::stages ? row_of_stages(shape.ranks) : 4;
}

// All stages have measured a step after the last pass of the last stage. Its update must precede the first
// pass of the step after the next: the end of the period.
Overlap cut_overlap(const PipelineOrder& step, const PipelineOrder& row, const std::string& title) {
  const PipelineTiming timing = time_schedule(row, unit_costs);
  Numbered<RankRow> ranks;
  double all_done = 0, busy = 0, taken = 0;
  for (std::int32_t rank = 0; rank < step.shape.ranks; ++rank) {
    const RankRow& of = ranks.emplace_back(step, row, Delay::one, rank, title);
    all_done = std::max(all_done, timing.times[rank][of.last_of(1)].end);
  }
  Overlap overlap;
  for (std::int32_t rank = 0; rank < step.shape.ranks; ++rank) {
    const RankRow& of = ranks[rank];
    const std::vector<CallTime>& times = timing.times[rank];
    const std::size_t begin = of.first_of(2), end = of.first_of(3);
    Period period{of.period(), {}, {}, {}};
    period.measured.at = first_from(times, begin, end, all_done);
    period.updated.at = first_from(times, begin, end, all_done + until_known);
    period.reported.at = first_from(times, begin, end, all_done + until_told);
    overlap.periods.push_back(std::move(period));
    taken += times[end].begin - times[begin].begin;
    for (std::size_t at = begin; at < end; ++at) busy += times[at].end - times[at].begin;
  }
  overlap.bubble = 1 - busy / taken;
  const double period = taken / step.shape.ranks;
  overlap.drain = time_schedule(step, unit_costs).makespan - period;
  return overlap;
}

// A stage is updated right after its backward. Its norm is known when the last stage has measured.
Overlap cut_stages_overlap(const PipelineOrder& step, const PipelineOrder& row, const std::string& title) {
  const PipelineTiming timing = time_schedule(row, unit_costs);
  const std::int32_t ranks = step.shape.ranks, at = ranks;
  Numbered<RankRow> rows;
  double all_done = 0, busy = 0, taken = 0;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    const RankRow& of = rows.emplace_back(step, row, Delay::stages, rank, title);
    all_done = std::max(all_done, timing.times[rank][of.last_of(at)].end);
  }
  Overlap overlap;
  std::int32_t running = 1;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    const RankRow& of = rows[rank];
    const std::vector<CallTime>& times = timing.times[rank];
    const std::int32_t delay = ranks - 1 - step.stages[rank].front();
    Period period{of.period_with(delay, at), {}, {}, {}};
    period.at_once = true;
    period.measured = {narrow<std::int32_t>(period.passes.size()), delay};
    period.updated = period.reported = of.place_from(times, at, all_done + until_known);
    running = std::max(running, period.reported.behind + 1);
    overlap.periods.push_back(std::move(period));
    const std::size_t begin = of.first_of(at), end = of.first_of(at + 1);
    taken += times[end].begin - times[begin].begin;
    for (std::size_t i = begin; i < end; ++i) busy += times[i].end - times[i].begin;
  }
  for (Period& period : overlap.periods) period.running = running;
  overlap.bubble = 1 - busy / taken;
  overlap.drain = time_schedule(step, unit_costs).makespan - taken / ranks;
  return overlap;
}

}  // namespace prun
