// Makes one try: the program and the plans that follow from a choice of what strategies leave to the planner.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "plan/make/make_plan.hpp"
#include "train/assemble/assembly.hpp"

namespace prun {

// ------------------------------------------------------------------- plan maker

// ------------------------------------------------------------ kernel offers

// Tells a plan what each device of a rank is, and which kernels it and op plugins offer for it.
class KernelOffers {
 public:
  explicit KernelOffers(const PlannedRecipe& of) : of_(of) {}

  // Describes the devices to plans of a written program, which must outlive them. Lowering explains
  // `spare`.
  Lowering lowering(const Assembly& next, const SpareMemory& spare) const;

 private:
  PlanDevice plan_device(const Assembly& next, std::size_t number) const;
  OfferedKernel offered(DeviceInterface& device, std::string_view kind, const std::string& plugin,
                        std::string_view op) const;

  const PlannedRecipe& of_;
  mutable std::mutex asking_;  // only one thread at a time may call plugins
};

class PlanMaker {
 public:
  // Throws if the recipe's device computes nothing.
  explicit PlanMaker(std::shared_ptr<PlannedRecipe> of);

  // Turns `made` into the result of the choice, whether it fits or not; devices and plans of its previous
  // state are freed first. Lowering explains `spare`. Stages differ, so each rank makes the plans of all
  // of them: what they send must be what they expect. Nothing is proven of them yet.
  void make(const PlannedChoice& choice, const SpareMemory& spare, std::optional<Assembly>& made);
  // Returns the result of the choice before anything is planned: programs and devices, and no plans.
  Assembly write(const PlannedChoice& choice) const;
  // Returns the outlines of the plans of stages that differ most: the first, one in the middle and the last;
  // without a pipeline, that of the one plan.
  std::vector<PlanOutline> outlines(const Assembly& written) const;
  // Plans, for the assembly that is taken, its other kinds of steps, and the memory that they need beyond the
  // full one's: steps before the batch is full, if it grows (batch.ramp), and those without ops of
  // `periodic`.
  void plan_other_steps(Assembly& taken, const SpareMemory& spare) const;
  // Throws if a plan is wrong, or ranks expect what others do not send. It takes longer than planning does,
  // so only what fits is proven, once.
  void prove(const Assembly& taken) const;
  // Leaves the rest to saves, at the end, for the assembly that is taken.
  void leave_rest_to_saves(Assembly& taken) const;

 private:
  // States what a step is made of.
  struct Microbatches {
    std::int64_t count = 1;
    const std::optional<PipelineLayout>& pipeline;
    bool periodic = true;  // whether ops of `periodic` run
  };

  Work work_of_stage(const Program& program, Purpose purpose, const Microbatches& microbatches,
                     std::size_t stage) const;
  Assembly with_devices(WrittenProgram written) const;
  void make_devices(Assembly& next) const;
  std::shared_ptr<DeviceInterface> make_device_beside(const std::string& plugin) const;
  std::unique_ptr<Program> lowered(const Assembly& next, const Program& program) const;
  std::vector<Plan> plans_of(const Assembly& next, const Program& program, Purpose purpose,
                             const Microbatches& microbatches, const SpareMemory& spare) const;
  Microbatches full_step(const Assembly& next) const { return {of_->batch.accumulate, next.pipeline_}; }
  void check_steps_may_differ(const Assembly& taken) const;
  std::vector<Plan> plans_of_kind(const Assembly& taken, const StepKind& kind,
                                  const SpareMemory& spare) const;
  void plan_evaluation(Assembly& next, std::size_t way, const SpareMemory& spare);

  const std::shared_ptr<PlannedRecipe> of_;
  const KernelOffers offers_;
  const std::shared_ptr<DeviceInterface> device_;  // device of the recipe, as it was found once
  DeviceInfo device_info_;
  // This belongs to the last way: it is the same for every choice of what backward computes again, since it
  // has no backward.
  std::shared_ptr<const Program> evaluation_;
  std::size_t evaluation_way_ = 0;
  std::optional<std::int64_t> data_bytes_;  // counted once: no choice changes them
};

// ------------------------------------------------------------------- memory fit
// Checks whether a rank has the memory for its plans, and makes the refusal if it has not.

// Returns what the process holds of the recipe's data.
std::int64_t data_bytes_of(const Assembly& assembly, PluginHost& plugins);
// Returns what a rank's process of each stage needs beside its plan; the result is the same everywhere: ranks
// must agree on what fits. Devices and drives that a plan uses count, so each plan that is tried has its own.
std::vector<ProcessNeed> process_needs_of(const Assembly& assembly, PluginHost& plugins,
                                          std::int64_t data_bytes);
// Gives saves as much as they can use of what plans leave free, if the recipe does not say how much. What
// speculative updates hold counts as free: they come behind saves.
void leave_rest_to_saves(const Assembly& assembly, std::vector<ProcessNeed>& needs);

// Returns what plans may take of the recipe's device. What the recipe states is the plan's alone; if it
// states nothing, the plan shares with the process.
std::int64_t memory_limit(const Assembly& assembly);
// Returns the bytes of the largest plan.
std::int64_t bytes_needed(const Assembly& assembly);
// Returns the most speculative updates that hosts have memory for beside all else and what saves use; at most
// as many as are planned.
std::int32_t speculated_that_fit(const Assembly& assembly);
// Says what another device lacks for the plans; an empty text means nothing.
std::string missing_further_memory(const Assembly& assembly);

// Holds the findings while no plan fitted.
struct NotFitting {
  std::int64_t needed = 0, least = 0;  // bytes of the first plan, and of the smallest
  std::string further;                 // what the first one that fits the first device lacked, in words
  std::string refused;                 // why the first one that strategies would have chosen was refused
};
// Throws DoesNotFit. `last` is the last plan that was tried.
[[noreturn]] void refuse_memory(const Assembly& last, const NotFitting& tried);

}  // namespace prun
