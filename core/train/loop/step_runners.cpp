#include "train/loop/step_runners.hpp"

namespace prun {

StepRunners::StepRunners(const Assembly& assembly, const Membership& membership, const Peers& peers,
                         QueueComms& comms, SaveGate& gate)
    : assembly_(assembly),
      options_{assembly.recipe().flag("run.poison"), assembly.rank(),
               assembly.recipe().integer("run.measure_comm"), nullptr, &gate},
      full_(assembly, assembly.plan(), options_, comms.of_full_step(),
            probes_of(membership.probes, assembly, peers.communicators())) {}

void StepRunners::open_ramp(const Membership& membership, const Peers& peers, QueueComms& comms) {
  ExecutorOptions options = options_;
  options.base_program = &memory();
  for (const RampPlans& ramp : assembly_.ramp()) {
    const Plan& plan = assembly_.plan_of(ramp, assembly_.rank());
    std::vector<Probe*> probes;
    if (membership.ramp_probes) probes = membership.ramp_probes(assembly_, plan, peers.communicators());
    fewer_.try_emplace(ramp.accumulate, assembly_, plan, options, comms.of(plan), std::move(probes));
  }
}

StepRunner& StepRunners::runner_of(std::int64_t global) {
  const std::int64_t microbatches = assembly_.batch().with_global(global).accumulate;
  return microbatches == assembly_.batch().accumulate ? full_ : fewer_.at(microbatches);
}

bool StepRunners::turn_to(std::int64_t global) {
  StepRunner& next = runner_of(global);
  if (&next != now_ && now_->running() > 0) return false;
  now_ = &next;
  return true;
}

}  // namespace prun
