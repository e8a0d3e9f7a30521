// Holds a checked recipe with its program and its plan, for all code that runs, checks or reports a step.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plan/persistent.hpp"
#include "plan/plan.hpp"
#include "plan/plan_devices.hpp"
#include "prun/error.hpp"
#include "train/assemble/model_program.hpp"
#include "train/assemble/process_memory.hpp"
#include "train/assemble/program_writer.hpp"

namespace prun {

// ------------------------------------------------------------------- assembly

// Holds what is planned: it stays the same, whatever is tried so that it fits.
struct PlannedRecipe {
  // Throws an Error that shows every combination that cannot work.
  PlannedRecipe(Recipe recipe, PluginHost& plugins, std::int64_t rank, Purpose purpose);
  PlannedRecipe(const PlannedRecipe&) = delete;
  PlannedRecipe& operator=(const PlannedRecipe&) = delete;

  Recipe recipe;
  PluginHost& plugins;
  std::int64_t rank;
  Purpose purpose;
  BatchArithmetic batch;
  KnownOps ops;
  ProgramWriter writer, evaluation_writer;  // writers whose ops programs point to
};

// Tells apart the steps of a run that have different plans: by their microbatches, and by whether they run
// ops of `periodic`.
struct StepKind {
  std::int64_t accumulate = 1;
  bool periodic = false;
  friend auto operator<=>(const StepKind&, const StepKind&) = default;  // NOLINT: no null in it
};

// Holds the plans of steps of the same program that differ from the full one: over the plans of that.
struct StepPlans {
  StepKind kind;
  std::vector<Plan> plans;  // plans by the pipeline's coordinate
};

// Holds the result of assemble(): nothing in it changes any more.
class Assembly {
 public:
  // assemble() calls this.
  Assembly(Recipe recipe, PluginHost& plugins, std::int64_t rank = 0, Purpose purpose = Purpose::training);
  Assembly(Assembly&&) = default;
  Assembly& operator=(Assembly&&) = default;

  const Recipe& recipe() const { return of_->recipe; }
  const Mesh& mesh() const { return program_->mesh(); }
  std::int64_t rank() const { return of_->rank; }
  Purpose purpose() const { return of_->purpose; }
  const BatchArithmetic& batch() const { return of_->batch; }
  // Returns the program that is planned and runs.
  const Program& program() const { return *program_; }
  // Returns the program as strategies left it, before the device put in ops of its own: model FLOPs are
  // counted on it.
  const Program& unlowered() const { return *unlowered_; }
  const Plan& plan() const { return plan_of(rank()); }
  // Returns the plan of a rank. Ranks that do the same share a plan: all but the stages of a pipeline.
  const Plan& plan_of(std::int64_t rank) const { return plans_[stage_of(rank)]; }
  // These return, for its own rank, everything that it holds, and what it saves of that.
  std::vector<HeldSlice> held_slices() const;
  std::vector<HeldSlice> saved_slices() const;
  const std::vector<Plan>& plans() const { return plans_; }
  const std::optional<PipelineLayout>& pipeline() const { return pipeline_; }
  // Returns the kind of the full step, whose plans plans() are: it runs ops of `periodic`, if there are any.
  StepKind full_step() const { return {batch().accumulate, period() > 0}; }
  // Returns in one of how many steps ops of `periodic` run; 0: there are none.
  std::int64_t period() const;
  // Returns the other kinds of steps that the run has: of fewer microbatches, if the batch grows and not in
  // padding alone, and those between two that run ops of `periodic`.
  const std::vector<StepPlans>& other_steps() const { return other_steps_; }
  const Plan& plan_of(const StepPlans& step, std::int64_t rank) const { return step.plans[stage_of(rank)]; }
  // Returns, if training evaluates now and then, the program for that; the next function returns this rank's
  // plan of it, which is over plan(). Null: training does not evaluate.
  const Program* evaluation() const { return evaluation_.get(); }
  const Plan& evaluation_plan() const { return evaluation_plan_of(rank()); }
  const Plan& evaluation_plan_of(std::int64_t rank) const { return evaluation_plans_[stage_of(rank)]; }
  // Digests everything that ranks must agree on: the plans of all stages.
  std::string fingerprint() const;
  // Returns the devices of the rank, by number. The recipe's is the first; the program requests the others.
  Numbered<DeviceInterface*> devices() const;
  const Numbered<DeviceInfo>& device_infos() const { return device_infos_; }
  const DeviceInfo& device_info() const { return device_infos_.front(); }
  // Returns what a rank's process needs besides the plan's arena, by stage.
  const std::vector<ProcessNeed>& process_needs() const { return process_needs_; }
  std::int64_t process_bytes_of(std::int64_t rank) const { return process_needs_[stage_of(rank)].bytes; }
  std::int64_t process_bytes() const { return process_bytes_of(rank()); }
  const ProcessNeed& process_need_of(std::int64_t rank) const { return process_needs_[stage_of(rank)]; }
  const ProcessNeed& process_need() const { return process_need_of(rank()); }
  // Returns what the process needs of the device's memory besides: context, libraries, communicators.
  std::int64_t process_device_bytes() const { return process_needs_[stage_of(rank())].device_bytes; }
  // Returns the bytes of a plan in the memory of a device or, for a tier, on its disk. Host memory counts as
  // one, whichever device uses it; so does the memory of devices that are the same unit.
  std::int64_t bytes_in_memory_of(std::size_t device, const Plan& plan) const;
  // Returns the end of a refusal: how to state that the machine has more memory than the device found. It is
  // empty if the device has no option for that.
  std::string hint_of_more_memory(std::size_t device) const;
  // Says whether the recipe states how much memory of a device plans count on, as for another machine, and
  // returns the key for that; no key: the device has no option for it.
  bool is_memory_stated(std::size_t device) const;
  std::string key_of_planned_memory(std::size_t device) const { return key_by_trait(device, "plan"); }
  // Says whether the device's memory is known: of another machine only what the recipe says is.
  bool knows_memory_of(std::size_t device) const { return !device_info().absent || is_memory_stated(device); }
  // Returns the key that states how many units a host of another machine has; it is empty if there is none.
  std::string key_of_planned_units() const { return key_by_trait(0, "plan_units"); }
  // Returns the key that states how many threads of a device compute; it is empty if there is none.
  std::string key_of_planned_threads(std::size_t device) const {
    return key_by_trait(device, "plan_threads");
  }
  // Throws an Error if ranks would wait for each other for ever, given how deep the device's queues are and
  // how many exchanges comm plugins allow. `stamps` says that timed probes need them. assemble() has checked
  // without.
  void check_no_deadlock(bool stamps) const;
  std::int64_t parameters() const;  // parameters of the whole model, frozen ones included
  // Returns full_name() of program/passes.hpp for a value of one instance of this rank.
  std::string full_name(Id value, std::int32_t instance) const;
  // Calls body(value, instance) for every parameter of every instance that this rank holds, in registration
  // order.
  template <class Body>
  void each_parameter(Body&& body) const;
  // Does so for each state that a strategy keeps (ProgramApi::state).
  template <class Body>
  void each_kept_state(Body&& body) const;

 private:
  friend class PlanMaker;
  Assembly() = default;

  std::size_t stage_of(std::int64_t rank) const {
    return pipeline_ ? static_cast<std::size_t>(mesh().coordinate(rank, pipeline_->axis)) : 0;
  }
  std::string plugin_of(std::size_t device) const;
  std::string key_by_trait(std::size_t device, std::string_view trait) const;
  void check_no_deadlock(const Program& program, const std::vector<Plan>& plans, bool stamps) const;
  // Calls body(program, plans, whether they are over plans()) for all that was planned.
  template <class Body>
  void each_planned(Body&& body) const;

  std::shared_ptr<const PlannedRecipe> of_;
  std::vector<std::shared_ptr<DeviceInterface>> devices_;
  Numbered<DeviceInfo> device_infos_;
  std::shared_ptr<const Program> unlowered_, program_, evaluation_;
  std::optional<PipelineLayout> pipeline_;
  std::vector<Plan> plans_;             // plans by the pipeline's coordinate
  std::vector<Plan> evaluation_plans_;  // plans likewise
  std::vector<StepPlans> other_steps_;
  std::vector<ProcessNeed> process_needs_;  // needs by the pipeline's coordinate
};

template <class Body>
void Assembly::each_planned(Body&& body) const {
  body(*program_, plans_, false);
  if (evaluation_) body(*evaluation_, evaluation_plans_, true);
  for (const StepPlans& step : other_steps_) body(*program_, step.plans, true);
}

template <class Body>
void Assembly::each_parameter(Body&& body) const {
  for (std::size_t i = 0; i < plan().instances.size(); ++i) {
    if (plan().instances[i].is_stub()) continue;
    for (Id value : program_->segment(plan().instances[i].segment).values)
      if (program_->value(value).role == Role::parameter) body(value, static_cast<std::int32_t>(i));
  }
}

template <class Body>
void Assembly::each_kept_state(Body&& body) const {
  for (std::size_t i = 0; i < plan().instances.size(); ++i) {
    if (plan().instances[i].is_stub()) continue;
    for (Id value : program_->segment(plan().instances[i].segment).values)
      if (program_->value(value).declared) body(value, static_cast<std::int32_t>(i));
  }
}

// ------------------------------------------------------------------- assemble
// Turns a checked recipe into a program and a plan that fit: it decides which plugins take part, and in which
// order they work.

// Throws an Error that shows every combination that cannot work, or the first thing a plugin refused;
// DoesNotFit if there is not enough memory. The plan is that of one rank. Unproven, it may be compared with
// others, but not run.
Assembly assemble_unproven(Recipe recipe, PluginHost& plugins);
Assembly assemble(Recipe recipe, PluginHost& plugins, std::int64_t rank, Purpose purpose);

// ------------------------------------------------------------------- one host
// Checks whether the ranks of a machine fit on it together.

// Returns how many ranks share a host, as far as the device or the recipe states: one for each of its units.
// For another machine it is unknown: then each rank has its own host. Ranks on the host's cores all share it,
// unless the recipe says how many a host has.
std::int64_t ranks_of_host(const DeviceInfo& device, const Recipe& recipe, PluginHost& plugins,
                           std::int64_t world);
std::int64_t ranks_of_host(const Assembly& assembly);
// States what ranks of one host need together of its memory, and what there is.
struct HostMemory {
  std::size_t device = 0;  // device that says how much there is
  std::int64_t ranks = 0, needed = 0, there = 0;
  bool fits() const { return needed <= there; }
};
// Returns a host whose ranks together need more than it has; nothing if there is none, or if it is unknown
// how much hosts have.
std::optional<HostMemory> crowded_host(const Assembly& assembly);
bool hosts_have_room(const Assembly& assembly);
// Throws DoesNotFit if they do not.
void check_hosts_have_room(const Assembly& assembly);
// Returns a rank's share of what hosts have beyond their needs, where least is left; nothing if that is
// unknown.
std::optional<std::int64_t> left_on_hosts(const Assembly& assembly);

// Refuses ranks that all run on this machine if it lacks the memory for all of them, or enough units of the
// device.
void check_fits_one_host(const Assembly& assembly);

// Says whether the ranks of a host have more threads than it has cores.
bool cores_are_crowded(const Assembly& assembly);
// Returns a sentence that says so if they are; otherwise an empty text.
std::string crowded_cores(const Assembly& assembly);

// ------------------------------------------------------------------- does not fit
// Distinguishes the refusal of a plan that needs more memory than there is from others: callers may try
// something else.

class DoesNotFit : public Error {
 public:
  using Error::Error;
};

}  // namespace prun
