#include "plan/order/overlap.hpp"

#include <algorithm>
#include <map>

#include "base/narrow.hpp"

namespace prun {
namespace {

constexpr std::uint8_t bit(Round round) { return static_cast<std::uint8_t>(1u << static_cast<int>(round)); }

void number_positions(Plan& plan) {
  for (QueueInfo& queue : plan.queues) queue.calls = 0;
  for (Call& call : plan.calls) call.position = plan.queues[call.queue].calls++;
}

class Overlapping {
 public:
  Overlapping(const Work& work, const CallGroups& groups, Plan& plan)
      : work_(work), groups_(groups.all()), plan_(plan) {}

  void run() {
    const std::int32_t summed = behind_last_of_step_before(), measured = measured_at(summed),
                       updated = std::max(measured, work_.period.updated),
                       reported = std::max(updated, work_.period.reported),
                       passes = narrow<std::int32_t>(work_.period.passes.size());
    take(CallGroup::begun, false);
    for (std::int32_t at = 0; at <= passes; ++at) {
      if (at == summed) take(CallGroup::summed, true);
      if (at == measured) take(CallGroup::measured, true);
      if (at == updated) take(CallGroup::updated, true);
      if (at == reported) take(CallGroup::reported, true);
      if (at == passes) break;
      const PeriodPass& pass = work_.period.passes[static_cast<std::size_t>(at)];
      take(CallGroup::pass, pass.behind, static_cast<std::size_t>(pass.call));
    }
    PRUN_CHECK(calls_.size() == plan_.calls.size(), "calls are lost as steps overlap");
    plan_.calls = std::move(calls_);
    number_positions(plan_);
  }

 private:
  void take(CallGroup::Kind kind, bool behind, std::size_t number = 0) {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (groups_[g].kind != kind || groups_[g].number != number) continue;
      const std::size_t end = g + 1 < groups_.size() ? groups_[g + 1].first : plan_.calls.size();
      for (std::size_t c = groups_[g].first; c < end; ++c) {
        Call& call = calls_.emplace_back(std::move(plan_.calls[c]));
        call.behind = behind;
        call.rounds = bit(Round::going_on) | bit(behind ? Round::ending : Round::beginning);
      }
    }
  }

  std::int32_t behind_last_of_step_before() const {
    const std::vector<PeriodPass>& passes = work_.period.passes;
    const auto last =
        std::find_if(passes.rbegin(), passes.rend(), [](const PeriodPass& pass) { return pass.behind; });
    return narrow<std::int32_t>(passes.rend() - last);
  }

  // What two stages sum is there once both have it; before this step's own sums are complete, whose exchanges
  // use the same memory.
  std::int32_t measured_at(std::int32_t summed) const {
    if (!has_tied()) return summed;
    const std::vector<PeriodPass>& passes = work_.period.passes;
    const auto completes = [&](const PeriodPass& pass) {
      const ScheduleCall& call = work_.calls[static_cast<std::size_t>(pass.call)];
      return !pass.behind && call.pass != Pass::forward && call.microbatch + 1 == plan_.microbatches;
    };
    const auto first = std::find_if(passes.begin(), passes.end(), completes);
    return std::clamp(work_.period.measured, summed,
                      std::max(summed, narrow<std::int32_t>(first - passes.begin())));
  }

  bool has_tied() const {
    return std::any_of(plan_.functions.begin(), plan_.functions.end(),
                       [](const PlannedFunction& function) { return function.kind == FunctionKind::tie; });
  }

  const Work& work_;
  const std::vector<CallGroup>& groups_;
  Plan& plan_;
  std::vector<Call> calls_;
};

// Functions that read the newest parameters in the place of what is kept of the ones before.
class EarlyFunctions {
 public:
  EarlyFunctions(const Program& program, Plan& plan) : plan_(plan) {
    for (const Id parameter : program.parameters())
      if (const Id before = program.value(parameter).before; before != none) newest_[before] = parameter;
  }

  // Of a function, its number; -1: it reads none of them.
  std::int32_t of(std::int32_t function) {
    const auto [entry, fresh] = early_.try_emplace(function, -1);
    if (!fresh || !reads_any(plan_.functions[function])) return entry->second;
    PlannedFunction early = plan_.functions[function];
    for (PlannedStep& step : early.steps)
      for (PlannedOperand& operand : step.operands)
        if (const auto newest = newest_.find(operand.value); newest != newest_.end())
          operand = {newest->second, plan_.home(newest->second)};
    plan_.functions.push_back(std::move(early));
    return entry->second = narrow<std::int32_t>(plan_.functions.size()) - 1;
  }

 private:
  bool reads_any(const PlannedFunction& function) const {
    for (const PlannedStep& step : function.steps)
      for (const PlannedOperand& operand : step.operands)
        if (newest_.contains(operand.value)) return true;
    return false;
  }

  Plan& plan_;
  std::map<Id, Id> newest_;                     // by what is kept of it
  std::map<std::int32_t, std::int32_t> early_;  // by function
};

}  // namespace

void overlap_steps(const Work& work, const CallGroups& groups, Plan& plan) {
  Overlapping(work, groups, plan).run();
}

void read_newest_early(const Program& program, Plan& plan) {
  EarlyFunctions early(program, plan);
  const auto updated = std::find_if(plan.calls.begin(), plan.calls.end(), [&](const Call& call) {
    return plan.functions[call.function].kind == FunctionKind::update;
  });
  std::vector<Call> calls;
  for (auto call = plan.calls.begin(); call != plan.calls.end(); ++call) {
    const std::int32_t function = call < updated && !call->behind ? early.of(call->function) : -1;
    if (function >= 0) {
      calls.push_back(*call);
      calls.back().function = function;
      calls.back().rounds = bit(Round::going_on);
      call->rounds = bit(Round::beginning);
    }
    calls.push_back(std::move(*call));
  }
  plan.calls = std::move(calls);
  number_positions(plan);
}

}  // namespace prun
