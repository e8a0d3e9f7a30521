#include "plan/order/overlap.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/narrow.hpp"
#include "plan/work.hpp"

namespace prun {
namespace {

void number_positions(Plan& plan) {
  for (QueueInfo& queue : plan.queues) queue.calls = 0;
  for (Call& call : plan.calls) call.position = plan.queues[call.queue].calls++;
}

class Overlapping {
 public:
  Overlapping(const Work& work, const CallGroups& groups, Plan& plan)
      : work_(work), groups_(groups.all()), plan_(plan) {}

  void run() {
    const std::vector<PeriodPass>& passes = work_.period.passes;
    const std::vector<Placed> placed = work_.period.at_once ? placed_at_once() : placed_behind();
    take(CallGroup::begun, 0);
    for (std::size_t at = 0; at <= passes.size(); ++at) {
      for (const Placed& group : placed)
        if (std::cmp_equal(group.place.at, at)) take(group.kind, group.place.behind);
      if (at < passes.size())
        take(CallGroup::pass, passes[at].behind, static_cast<std::size_t>(passes[at].call));
    }
    PRUN_CHECK(calls_.size() == plan_.calls.size(), "calls are lost as steps overlap");
    plan_.calls = std::move(calls_);
    number_positions(plan_);
  }

 private:
  struct Placed {
    CallGroup::Kind kind;
    PeriodPlace place;
  };

  std::vector<Placed> placed_behind() const {
    const std::int32_t summed = behind_last_of_step_before(), measured = measured_at(summed),
                       updated = std::max(measured, work_.period.updated.at),
                       reported = std::max(updated, work_.period.reported.at);
    return {{CallGroup::summed, {summed}},
            {CallGroup::measured, {measured}},
            {CallGroup::updated, {updated}},
            {CallGroup::reported, {reported}}};
  }

  // Returns the groups of an iteration: those of an earlier step come before those of a later one.
  std::vector<Placed> placed_at_once() const {
    const Period& period = work_.period;
    return {{CallGroup::updated, period.updated},
            {CallGroup::reported, period.reported},
            {CallGroup::summed, period.measured},
            {CallGroup::measured, period.measured}};
  }

  void take(CallGroup::Kind kind, std::int32_t behind, std::size_t number = 0) {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (groups_[g].kind != kind || groups_[g].number != number) continue;
      const std::size_t end = g + 1 < groups_.size() ? groups_[g + 1].first : plan_.calls.size();
      for (std::size_t c = groups_[g].first; c < end; ++c) {
        Call& call = calls_.emplace_back(std::move(plan_.calls[c]));
        call.behind = behind;
        call.from = narrow<std::uint8_t>(behind);
      }
    }
  }

  std::int32_t behind_last_of_step_before() const {
    const std::vector<PeriodPass>& passes = work_.period.passes;
    const auto last =
        std::find_if(passes.rbegin(), passes.rend(), [](const PeriodPass& pass) { return pass.behind; });
    return narrow<std::int32_t>(passes.rend() - last);
  }

  // Returns the place of group `measured`. Sums over two stages must have arrived, and this step's own sums,
  // whose collectives use the same memory, must not be complete yet.
  std::int32_t measured_at(std::int32_t summed) const {
    if (!has_tied()) return summed;
    const std::vector<PeriodPass>& passes = work_.period.passes;
    const auto completes = [&](const PeriodPass& pass) {
      const ScheduleCall& call = work_.calls[static_cast<std::size_t>(pass.call)];
      return !pass.behind && call.pass != Pass::forward && call.microbatch + 1 == plan_.microbatches;
    };
    const auto first = std::find_if(passes.begin(), passes.end(), completes);
    return std::clamp(work_.period.measured.at, summed,
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

// Makes variants of functions that read parameters of another age, in updates.
class AgedFunctions {
 public:
  AgedFunctions(const Program& program, Plan& plan) : program_(program), plan_(plan) {}

  std::int32_t of(std::int32_t function, std::int64_t age) {
    const auto [entry, fresh] = aged_.try_emplace({function, age}, -1);
    if (!fresh) return entry->second;
    PlannedFunction aged = plan_.functions[function];
    read_with_age(program_, plan_, age, aged);
    plan_.functions.push_back(std::move(aged));
    return entry->second = narrow<std::int32_t>(plan_.functions.size()) - 1;
  }

 private:
  const Program& program_;
  Plan& plan_;
  std::map<std::pair<std::int32_t, std::int64_t>, std::int32_t> aged_;
};

// Returns how many updates ago the parameters that a pass needs were current, in the iteration of a row that
// has `before` iterations before it. A row's first update comes `first` iterations after its step begins.
std::int64_t age_in_iteration(const Call& call, std::int32_t delay, std::int32_t first, std::int32_t before) {
  const std::int32_t updates = std::max(0, before - first);
  return updates - (before - call.behind) + delay;
}

class Aging {
 public:
  Aging(const Program& program, Plan& plan) : program_(program), plan_(plan), functions_(program, plan) {}

  void run() {
    const auto updated = std::find_if(plan_.calls.begin(), plan_.calls.end(), [&](const Call& call) {
      return plan_.functions[call.function].kind == FunctionKind::update;
    });
    PRUN_CHECK(updated != plan_.calls.end(), "steps overlap that update nothing");
    for (auto call = plan_.calls.begin(); call != plan_.calls.end(); ++call) {
      const std::int32_t first = call < updated ? updated->behind : updated->behind - 1;
      if (reads_before(program_, plan_.functions[call->function]) && is_pass(*call))
        add_by_age(*call, first);
      else
        calls_.push_back(std::move(*call));
    }
    plan_.calls = std::move(calls_);
    number_positions(plan_);
  }

 private:
  bool is_pass(const Call& call) const { return plan_.functions[call.function].kind != FunctionKind::update; }

  // Adds a call for each age. From iteration `first` on, each has one update, and the age stays: the call for
  // these comes first.
  void add_by_age(const Call& call, std::int32_t first) {
    const std::int32_t delay = plan_.instances[call.instance].delay;
    const std::int32_t steady = std::max<std::int32_t>(call.from, first);
    add(call, delay, age_in_iteration(call, delay, first, steady), steady, Iteration::many);
    for (std::int32_t before = call.from; before < steady; ++before)
      add(call, delay, age_in_iteration(call, delay, first, before), before, before);
  }

  void add(const Call& call, std::int32_t delay, std::int64_t age, std::int32_t from, std::int32_t to) {
    PRUN_CHECK(age >= 0 && age <= delay, "a pass would read parameters of ", age, " updates before");
    Call& added = calls_.emplace_back(call);
    if (age != delay) added.function = functions_.of(call.function, age);
    added.from = narrow<std::uint8_t>(from);
    added.to = narrow<std::uint8_t>(to);
  }

  const Program& program_;
  Plan& plan_;
  AgedFunctions functions_;
  std::vector<Call> calls_;
};

}  // namespace

void overlap_steps(const Work& work, const CallGroups& groups, Plan& plan) {
  Overlapping(work, groups, plan).run();
}

void read_what_is_there(const Program& program, Plan& plan) { Aging(program, plan).run(); }

}  // namespace prun
