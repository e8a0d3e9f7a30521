// Replays steps over shadow memory until the state repeats.
#include "plan/proof/check_plan.hpp"

#include <algorithm>
#include <deque>

#include "plan/proof/call_replay.hpp"
#include "plan/proof/check_failure.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- check lists

// Bytes of a region. A rank's shard may be any part of its range.
struct TouchedBytes {
  const Address& address;
  std::int64_t end = 0;

  TouchedBytes(const Program& program, const Address& a) : address(a) {
    const std::int64_t parts = a.part_axis == no_axis ? 1 : program.mesh().extent(a.part_axis);
    end = a.offset + parts * a.bytes;
  }
  bool meets(const TouchedBytes& other) const {
    const Address &a = address, &b = other.address;
    return a.region == b.region && a.range == b.range && a.whose == b.whose && a.instance == b.instance &&
           a.offset < other.end && b.offset < end;
  }
};

bool touch_each_other(const Program& program, const PlannedExchange& a, const PlannedExchange& b) {
  const TouchedBytes a_in(program, a.in), a_out(program, a.out), b_in(program, b.in), b_out(program, b.out);
  return a_out.meets(b_in) || a_out.meets(b_out) || a_in.meets(b_out);
}

}  // namespace

void check_lists(const Program& program, const Plan& plan) {
  for (const PlannedFunction& function : plan.functions)
    for (const Piece& piece : function.pieces)
      for (std::int32_t later = piece.first + 1; later < piece.last; ++later)
        for (std::int32_t earlier = piece.first; earlier < later; ++earlier) {
          const PlannedStep &a = function.steps[earlier], &b = function.steps[later];
          if (a.exchange && b.exchange && touch_each_other(program, *a.exchange, *b.exchange))
            fail_check("segment '", program.segment(function.segment).name, "', ", name_of(function.kind),
                       ": exchanges ", earlier, " and ", later, " of one list touch the same bytes");
        }
}

namespace {

// ------------------------------------------------------------------- check plan

class Replay {
 public:
  Replay(const Program& program, const Plan& plan) : program_(program), plan_(plan), calls_(program, plan) {}

  // A step that leaves memory as the one before did is repeated by the next, since waits are the same and
  // what is known to be done only grows. Staging buffers alternate, and only the host reads them: each must
  // be written at least once. Overlapping steps have more buffers, so that many steps must repeat; then a row
  // of steps ends, and another follows and ends. So do texts, whose first steps have more calls.
  void run() {
    check_lists(program_, plan_);
    const int rows = plan_.overlaps || has_first_steps() ? 2 : 1;
    for (int row = 0; row < rows; ++row) {
      if (plan_.overlaps)
        replay_row();
      else
        replay_text();
    }
    check_effects(program_, plan_, calls_.called());
  }

 private:
  void replay_row() {
    const std::int32_t depth = plan_.depth();
    for (std::int32_t before = 0; before < depth; ++before, ++step_) replay_iteration({before, 0});
    repeat(step_);
    const std::int64_t next = step_ + 1;
    for (std::int32_t ended = 1; ended <= depth; ++ended) {
      ++step_;
      replay_iteration({Iteration::many, ended});
    }
    step_ = next;
    calls_.forget_what_is_not_kept();
  }

  bool has_first_steps() const {
    return std::any_of(plan_.calls.begin(), plan_.calls.end(), [](const Call& call) { return call.to == 0; });
  }

  void replay_text() {
    repeat(step_);
    ++step_;
    calls_.forget_what_is_not_kept();
  }

  // Repeats steps from this one on until memory is as before.
  void repeat(std::int64_t first) {
    const std::int64_t most_steps = std::max(8, 3 * plan_.staging_copies);
    const std::size_t alike =
        plan_.overlaps ? static_cast<std::size_t>(plan_.staging_copies) : 1;  // number of steps
    std::deque<ProofState> before;
    for (step_ = first;; ++step_) {
      if (step_ == first + most_steps)
        fail_check("the state of memory does not repeat within ", most_steps, " steps");
      if (!plan_.overlaps) calls_.replay_save(step_);
      replay_iteration(!plan_.overlaps && step_ == first ? Iteration::beginning : Iteration::going_on);
      before.push_back(calls_.state(step_));
      if (before.size() > alike) {
        if (before.back() == before.front()) return;
        before.pop_front();
      }
      if (!plan_.overlaps) calls_.forget_what_is_not_kept();
    }
  }

  void replay_iteration(Iteration iteration) {
    if (plan_.overlaps) calls_.begin_iteration(iterations_++);
    for (const Call& call : plan_.calls) calls_.replay(call, step_, iteration);
    calls_.end_iteration(step_);
  }

  const Program& program_;
  const Plan& plan_;
  CallReplay calls_;
  std::int64_t step_ = 0;        // of the iteration
  std::int64_t iterations_ = 0;  // so far, if steps overlap
};

}  // namespace

void check_plan(const Program& program, const Plan& plan) { Replay(program, plan).run(); }

namespace {

// ------------------------------------------------------------------- check over

// Checks a program over another: its memory is separate, or it is the same program with other microbatches
// and shares what persists.
class OverlayCheck {
 public:
  OverlayCheck(const Program& program, const Plan& plan, const BaseProgram& base_program)
      : program_(program), plan_(plan), base_program_(base_program) {}

  void run() {
    for (const Call& call : plan_.calls)
      for (const PlannedStep& step : plan_.steps(call)) {
        if (step.exchange && !gathers_in_place(call, step)) check_write(call, step, step.exchange->out);
        for (std::size_t i = 0; !step.exchange && i < step.operands.size(); ++i)
          if (step.operands[i].value != none && program_.op(step.op).access(i) != Access::read)
            check_write(call, step, step.operands[i].address);
        check_write(call, step, step.workspace);
        for (const Address& dead : step.dead_after) check_write(call, step, dead);
        for (const PlannedOperand& operand : step.operands)
          if (operand.value != none && lasts(operand.address.region)) check_same(call, operand);
      }
    if (base_program_.is_of(program_)) check_saves();
  }

 private:
  // Returns true for an in-place gather of unsharded parameters, from parts that both programs share.
  bool gathers_in_place(const Call& call, const PlannedStep& step) const {
    return plan_.functions[call.function].kind == FunctionKind::gather &&
           step.exchange->out.region == Region::parameter;
  }
  // Returns true if a call refreshes copies of parameters: both programs do so before use.
  bool renews(const Call& call, const Address& address) const {
    return plan_.functions[call.function].kind == FunctionKind::renew && address.region == Region::parameter;
  }
  // Returns true if both programs have a region at the same place.
  bool is_common(Region region) const {
    return base_program_.is_of(program_) && (lasts(region) || region == Region::runtime ||
                                             region == Region::batch || region == Region::scalars);
  }
  void check_write(const Call& call, const PlannedStep& step, const Address& address) const {
    if (address.bytes == 0 || is_common(address.region) || renews(call, address)) return;
    const std::string_view op = step.op == none ? "recv" : program_.op(step.op).kind();
    for (const int side : {0, 1}) {
      const std::int64_t at = plan_.resolve(call, address, side);
      for (const Layout::Range& range : base_program_.plan.layout.ranges)
        if (at < range.begin + range.kept && range.begin < at + address.bytes)
          fail_check("op '", op, "' writes ", name_of(address.region),
                     " where the program beneath keeps its own");
    }
  }

  // While a save reads, calls of both programs must wait for it by the same counter.
  void check_saves() const {
    if (plan_.save_reads != base_program_.plan.save_reads)
      fail_check("a save is not read as beneath the plan is said");
  }

  void check_same(const Call& call, const PlannedOperand& operand) const {
    const Value& value = program_.value(operand.value);
    for (Id other : base_program_.program.segment(value.segment).values) {
      const auto allocation = base_program_.plan.allocations.find(other);
      if (allocation == base_program_.plan.allocations.end() ||
          base_program_.program.value(other).name != value.name)
        continue;
      Address there = allocation->second;
      there.whose = operand.address.whose;
      there.instance = operand.address.instance;
      if (there.bytes == operand.address.bytes &&
          base_program_.plan.resolve(call, there, 0) == plan_.resolve(call, operand.address, 0))
        return;
    }
    fail_check("'", value.name, "' does not lie where the program beneath has it");
  }

  const Program& program_;
  const Plan& plan_;
  const BaseProgram& base_program_;
};

}  // namespace

void check_over(const Program& program, const Plan& plan, const BaseProgram& base_program) {
  OverlayCheck(program, plan, base_program).run();
}

}  // namespace prun
