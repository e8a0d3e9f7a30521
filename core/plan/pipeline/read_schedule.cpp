// Checks everything that a schedule plugin answers. A wrong order would hang all ranks, or train on
// activations that do not exist.
#include "plan/pipeline/read_schedule.hpp"

#include "base/narrow.hpp"
#include "base/text.hpp"
#include "plan/pipeline/overlap.hpp"
#include "plan/pipeline/timing.hpp"

namespace prun {
namespace {

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
