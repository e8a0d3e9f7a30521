// Tells a plan what each device of a rank is, and which kernels it and op plugins offer for it.
#pragma once

#include <mutex>
#include <string>

#include "plan/make/make_plan.hpp"
#include "train/assemble/assembly.hpp"

namespace prun {

class KernelOffers {
 public:
  explicit KernelOffers(const PlannedRecipe& of) : of_(of) {}

  // Describes the devices to plans of a written program, which must outlive them. Lowering explains
  // `far_ahead`.
  Lowering lowering(const Assembly& next, bool far_ahead) const;

 private:
  PlanDevice plan_device(const Assembly& next, std::size_t number) const;
  OfferedKernel offered(DeviceInterface& device, std::string_view kind, const std::string& plugin,
                        std::string_view op) const;

  const PlannedRecipe& of_;
  mutable std::mutex asking_;  // only one thread at a time may call plugins
};

}  // namespace prun
