// Checks everything that a schedule plugin answers. A wrong order would hang all ranks, or train on
// activations that do not exist.
#include "plan/pipeline/read_schedule.hpp"

#include <algorithm>
#include <map>

#include "base/narrow.hpp"
#include "base/text.hpp"
#include "plan/pipeline/timing.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- overlap

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
    std::int32_t iteration = step_of(at);
    for (std::size_t before = 0; before <= at; ++before) iteration = std::max(iteration, step_of(before));
    const auto place = narrow<std::int32_t>(at - first_of(iteration));
    if (place == 0) return {narrow<std::int32_t>(calls_.size()), iteration - 1 - step};
    return {place, iteration - step};
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

namespace {

// ------------------------------------------------------------------- read schedule

constexpr std::int32_t extent_limit = 1 << 20;  // of ranks, microbatches, and chunks
constexpr std::int64_t piece_limit = 1 << 24;   // of passes in a step

std::string counted(std::int32_t count, const char* one, const char* many) {
  return detail::concat(count, ' ', count == 1 ? one : many);
}

void check_shape(const ScheduleShape& shape, const std::string& title) {
  for (const std::int32_t extent : {shape.ranks, shape.microbatches, shape.chunks})
    if (extent < 1 || extent > extent_limit)
      throw_error(ErrorCode::bad_input, title, ": each of the three must be 1 to ", extent_limit);
  const std::int64_t pieces = std::int64_t{shape.ranks} * shape.chunks * shape.microbatches;
  if (pieces > piece_limit)
    throw_error(ErrorCode::bad_input, title, ": their product is ", pieces, ", more than ", piece_limit);
}

void check_status(const Status& status, const std::string& title, const char* function) {
  if (!status.ok())
    throw_error(ErrorCode::bad_input, title, ": its ", function,
                "() failed: ", printable(status.message, 500));
}

// Checks one rank's list, call by call.
class RankCheck {
 public:
  RankCheck(const ScheduleShape& shape, bool split, std::int32_t rank, const std::string& title)
      : shape_(shape), split_(split), rank_(rank), title_(title) {
    const std::int64_t pieces = std::int64_t{shape.chunks} * shape.microbatches;
    position_ = Numbered<std::int32_t>(pieces * pass_count, absent);
  }

  // Calls cannot repeat, so that even an endless list ends.
  std::vector<ScheduleCall> run(const Array<ScheduleCall>& answer) {
    if (answer.data == nullptr && answer.size != 0)
      refuse("order() returned ", answer.size, " calls at null");
    std::vector<ScheduleCall> calls;
    for (const ScheduleCall& call : answer) {
      check_fields(call, calls.size());
      check_place(call, calls.size());
      position(call) = narrow<std::int32_t>(calls.size());
      calls.push_back(call);
    }
    check_complete();
    return calls;
  }

 private:
  static constexpr std::int32_t absent = -1;

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    throw_error(ErrorCode::bad_input, title_, ": rank ", rank_, ": ", parts...);
  }
  template <class... Parts>
  [[noreturn]] void refuse_call(const ScheduleCall& call, std::size_t index, const Parts&... parts) const {
    refuse("call ", index, ", ", describe(call), ", ", parts...);
  }

  bool fits(Pass pass) const {
    return pass == Pass::forward || (split_ ? pass != Pass::backward : pass == Pass::backward);
  }

  void check_fields(const ScheduleCall& call, std::size_t index) const {
    const int pass = static_cast<int>(call.pass);
    if (pass >= pass_count)
      refuse("call ", index, " has pass number ", pass, ", there are 0 to ", pass_count - 1);
    if (!fits(call.pass))
      refuse_call(call, index, "does not fit its trait backward=", split_ ? "split" : "whole");
    if (call.chunk < 0 || call.chunk >= shape_.chunks)
      refuse_call(call, index, "is of a chunk the rank does not have (0 to ", shape_.chunks - 1, ")");
    if (call.microbatch < 0 || call.microbatch >= shape_.microbatches)
      refuse_call(call, index, "is of a microbatch that is not there (0 to ", shape_.microbatches - 1, ")");
  }

  void check_place(const ScheduleCall& call, std::size_t index) {
    if (position(call) != absent) refuse_call(call, index, "is the same as call ", position(call));
    if (call.pass == Pass::forward) return;
    const Pass before = call.pass == Pass::backward_weight ? Pass::backward_input : Pass::forward;
    if (position({before, call.chunk, call.microbatch}) == absent)
      refuse_call(call, index, "comes before the ", name_of(before), " it needs");
  }

  void check_complete() {
    for (int pass = 0; pass < pass_count; ++pass)
      for (std::int32_t chunk = 0; chunk < shape_.chunks; ++chunk)
        for (std::int32_t microbatch = 0; microbatch < shape_.microbatches; ++microbatch) {
          const ScheduleCall call{static_cast<Pass>(pass), chunk, microbatch};
          if (fits(call.pass) && position(call) == absent) refuse(describe(call), ", is missing");
        }
  }

  std::int32_t& position(const ScheduleCall& call) {
    const auto pass = static_cast<std::int64_t>(call.pass);
    return position_[(pass * shape_.chunks + call.chunk) * shape_.microbatches + call.microbatch];
  }

  const ScheduleShape& shape_;
  bool split_;
  std::int32_t rank_;
  const std::string& title_;
  Numbered<std::int32_t> position_;  // by pass, chunk and microbatch
};

struct Place {
  std::int32_t rank = -1, chunk = -1;
};

Numbered<Numbered<std::int32_t>> read_stages(ScheduleInterface& schedule, const ScheduleShape& shape,
                                             const std::string& title) {
  const std::int32_t count = shape.ranks * shape.chunks;
  Numbered<Place> place(count);
  Numbered<Numbered<std::int32_t>> stages(shape.ranks);
  for (std::int32_t rank = 0; rank < shape.ranks; ++rank)
    for (std::int32_t chunk = 0; chunk < shape.chunks; ++chunk) {
      std::int32_t stage = -1;
      check_status(schedule.stage(shape, rank, chunk, &stage), title, "stage");
      if (stage < 0 || stage >= count)
        throw_error(ErrorCode::bad_input, title, ": rank ", rank, ": chunk ", chunk, " is stage ", stage,
                    ", and stages go from 0 to ", count - 1);
      Place& taken = place[stage];
      if (taken.rank >= 0)
        throw_error(ErrorCode::bad_input, title, ": rank ", rank, ": chunk ", chunk, " is stage ", stage,
                    ", which is chunk ", taken.chunk, " of rank ", taken.rank, " already");
      taken = {rank, chunk};
      stages[rank].push_back(stage);
    }
  return stages;
}

std::int32_t rank_of_stage(const PipelineOrder& order, std::int32_t stage) {
  for (std::size_t rank = 0; rank < order.stages.size(); ++rank)
    for (const std::int32_t held : order.stages[rank])
      if (held == stage) return static_cast<std::int32_t>(rank);
  throw_error(ErrorCode::internal, "stage ", stage, " has no rank");
}

// Reports a rank that waits forever, and for what. The rank that it waits for waits forever too, so after as
// many steps as ranks a cycle is found.
[[noreturn]] void report_deadlock(const PipelineOrder& order, const Numbered<std::vector<CallTime>>& times,
                                  std::int32_t rank, const std::string& title) {
  const auto next_call = [&](std::int32_t of) { return order.calls[of][times[of].size()]; };
  const auto next_index = [&](std::int32_t of) { return times[of].size(); };
  for (std::int32_t i = 0; i < order.shape.ranks; ++i)
    rank = rank_of_stage(order, awaited_by(order, rank, next_call(rank)).value().stage);
  const Awaited awaited = awaited_by(order, rank, next_call(rank)).value();
  const std::int32_t other = rank_of_stage(order, awaited.stage);
  throw_error(ErrorCode::bad_input, title, ": rank ", rank, ": call ", next_index(rank), ", ",
              describe(next_call(rank)), ", waits forever for the ",
              awaited.backward ? "backward" : "forward", " of stage ", awaited.stage, ", which rank ", other,
              " has only after its call ", next_index(other), ", ", describe(next_call(other)),
              ", and that waits too");
}

void check_ends(const PipelineOrder& order, const std::string& title) {
  const Numbered<std::vector<CallTime>> times = run_in_virtual_time(order, PassCosts{});
  for (std::int32_t rank = 0; rank < order.shape.ranks; ++rank) {
    if (times[rank].size() < order.calls[rank].size()) report_deadlock(order, times, rank, title);
  }
}

PipelineOrder read_order(ScheduleInterface& schedule, const ScheduleShape& shape, bool split,
                         const std::string& title) {
  PipelineOrder order{shape, {}, read_stages(schedule, shape, title)};
  for (std::int32_t rank = 0; rank < shape.ranks; ++rank) {
    Array<ScheduleCall> calls;
    check_status(schedule.order(shape, rank, &calls), title, "order");
    order.calls.push_back(RankCheck(shape, split, rank, title).run(calls));
  }
  check_ends(order, title);
  return order;
}

}  // namespace

std::string describe(const std::string& name, const ScheduleShape& shape) {
  return detail::concat("schedule '", name, "' (", counted(shape.ranks, "rank", "ranks"), ", ",
                        counted(shape.microbatches, "microbatch", "microbatches"), ", ",
                        counted(shape.chunks, "chunk", "chunks"), ")");
}

std::string describe(const ScheduleCall& call) {
  return detail::concat(name_of(call.pass), " of chunk ", call.chunk, ", microbatch ", call.microbatch);
}

std::string schedule_problem(ScheduleInterface& schedule, const ScheduleShape& shape,
                             const std::string& name) {
  const std::string title = describe(name, shape);
  check_shape(shape, title);
  Text text;
  check_status(schedule.problem(shape, &text), title, "problem");
  if (text.data == nullptr && text.size != 0)
    throw_error(ErrorCode::bad_input, title, ": its problem() returned ", text.size, " letters at null");
  return printable(text.view(), 1000);
}

PipelineOrder read_schedule(ScheduleInterface& schedule, const ScheduleShape& shape, ScheduleTraits traits,
                            const std::string& name) {
  const std::string title = describe(name, shape);
  const std::string problem = schedule_problem(schedule, shape, name);
  if (!problem.empty()) throw_error(ErrorCode::bad_input, title, ": ", problem);
  PipelineOrder order = read_order(schedule, shape, traits.split, title);
  if (traits.delay == Delay::stages && shape.microbatches != 1)
    throw_error(ErrorCode::bad_input, title,
                ": its steps are of one microbatch, each of which is an update (trait delay=stages); make "
                "batch.global one batch.micro of each rank that shares out the batch");
  if (traits.delay != Delay::nothing) {
    ScheduleShape in_a_row = shape;
    in_a_row.microbatches *= steps_in_a_row(traits.delay, shape);
    check_shape(in_a_row, title + " in a row of steps");
    const PipelineOrder row = read_order(schedule, in_a_row, traits.split, title);
    order.overlap =
        traits.delay == Delay::one ? cut_overlap(order, row, title) : cut_stages_overlap(order, row, title);
  }
  Text formula;
  Bubble theory;
  check_status(schedule.bubble(shape, &formula, &theory.share), title, "bubble");
  theory.formula = printable(formula.view(), 100);
  if (theory.formula.empty()) return order;
  if (!(theory.share >= 0 && theory.share < 1))
    throw_error(ErrorCode::bad_input, title, ": its bubble() says ", theory.share, " of a step");
  order.theory = theory;
  return order;
}

}  // namespace prun
