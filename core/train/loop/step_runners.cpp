#include "train/loop/step_runners.hpp"

#include <algorithm>

namespace prun {

std::vector<QueueComm> QueueComms::of(const Plan& plan) {
  const std::vector<QueueInfo>& known = assembly_.plan().queues;
  const std::vector<QueueComm> all = of_full_step();
  std::vector<QueueComm> comms(plan.queues.size());
  for (std::size_t q = 0; q < comms.size(); ++q) {
    if (!plan.queues[q].communicates()) continue;
    const auto same = std::find_if(known.begin(), known.end(),
                                   [&](const QueueInfo& queue) { return queue.name == plan.queues[q].name; });
    PRUN_CHECK(same != known.end(), "queue ", plan.queues[q].name, " is not one of the full step");
    comms[q] = all[static_cast<std::size_t>(same - known.begin())];
  }
  return comms;
}

StepRunners::StepRunners(const Assembly& assembly, const Membership& membership, const Peers& peers,
                         QueueComms& comms, SaveGate& gate)
    : assembly_(assembly),
      options_{assembly.recipe().flag("run.poison"), assembly.rank(),
               assembly.recipe().integer("run.measure_comm"), nullptr, &gate},
      full_steps_(membership.full_steps),
      full_(assembly, assembly.plan(), options_, comms.of_full_step(),
            probes_of(membership.probes, assembly, peers.communicators())) {}

void StepRunners::open_others(const Membership& membership, const Peers& peers, QueueComms& comms) {
  ExecutorOptions options = options_;
  options.base_program = &memory();
  if (full_steps_) return;
  for (const StepPlans& step : assembly_.other_steps()) {
    const Plan& plan = assembly_.plan_of(step, assembly_.rank());
    std::vector<Probe*> probes;
    if (membership.other_probes) probes = membership.other_probes(assembly_, plan, peers.communicators());
    others_.try_emplace(step.kind, assembly_, plan, options, comms.of(plan), std::move(probes));
  }
}

StepRunner& StepRunners::runner_of(std::int64_t number, std::int64_t global) {
  if (full_steps_) return full_;
  const std::int64_t period = assembly_.period();
  const StepKind kind{assembly_.batch().with_global(global).accumulate, period > 0 && number % period == 0};
  return kind == assembly_.full_step() ? full_ : others_.at(kind);
}

bool StepRunners::turn_to(std::int64_t number, std::int64_t global) {
  StepRunner& next = runner_of(number, global);
  if (&next != now_ && now_->running() > 0) return false;
  now_ = &next;
  return true;
}

}  // namespace prun
