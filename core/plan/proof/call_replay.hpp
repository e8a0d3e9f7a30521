// Replays the calls of a plan, one by one, over shadow memory.
#pragma once

#include "plan/proof/check_effects.hpp"
#include "plan/proof/operand_memory.hpp"
#include "plan/proof/queue_clocks.hpp"
#include "plan/proof/sums_over_ranks.hpp"

namespace prun {

class CallReplay {
 public:
  CallReplay(const Program& program, const Plan& plan);

  // Says that, where steps overlap, so many rounds were before this one.
  void begin_round(std::int64_t round) { clocks_.begin_step(round); }
  // Replays a call of the round's newest step, or of one before it.
  void replay(const Call& call, std::int64_t step, Round round);
  // Replays a save, which may be begun before any step, when all before are done. It reads what they left,
  // while the step runs.
  void replay_save(std::int64_t step);
  void end_round(std::int64_t step) { memory_.begin_step(step); }

  void forget_what_is_not_kept() { memory_.forget_what_is_not_kept(); }
  // Returns what is known of memory and sums behind this step.
  ProofState state(std::int64_t step);
  const CalledPieces& called() const { return called_; }

 private:
  // Returns the step that the call at hand is of.
  std::int64_t now() const { return memory_.step(); }
  SumsOverRanks& sums_of(std::int64_t step) { return sums_[plan_.side_of(step)]; }
  SumsOverRanks& sums() { return sums_of(now()); }
  const ContentVersions& versions() const { return memory_.versions(); }
  FunctionKind kind_of(const Call& call) const { return plan_.functions[call.function].kind; }

  void replay_exchange(const Call& call, const PlannedStep& step);
  void replay_kernel(const Call& call, const PlannedStep& step, std::uint32_t first);
  std::int64_t read_operands(const Call& call, const PlannedStep& step, std::uint32_t first);

  const Program& program_;
  const Plan& plan_;
  QueueClocks clocks_;
  OperandMemory memory_;
  Numbered<SumsOverRanks> sums_;  // sums by side of a step
  CalledPieces called_;
};

}  // namespace prun
