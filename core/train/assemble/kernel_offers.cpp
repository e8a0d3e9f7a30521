#include "train/assemble/kernel_offers.hpp"

#include "train/assemble/memory_fit.hpp"
#include "train/assemble/recipe_checks.hpp"

namespace prun {

Lowering KernelOffers::lowering(const Assembly& next, bool far_ahead) const {
  Lowering lowering;
  for (std::size_t number = 0; number < next.device_infos().size(); ++number)
    lowering.devices.push_back(plan_device(next, number));
  lowering.bundle = of_.recipe.section("run").bytes("bundle");
  lowering.far_ahead = far_ahead;
  lowering.saves_beside =
      of_.purpose == Purpose::training && saves_between_steps(of_.recipe) && !save_memory(of_.recipe).all;
  if (of_.recipe.flag("run.poison")) lowering.fence = fence_bytes;
  return lowering;
}

PlanDevice KernelOffers::plan_device(const Assembly& next, std::size_t number) const {
  const DeviceInfo& info = next.device_infos()[number];
  std::string kind(info.kind.view());
  const std::string plugin = number == 0 ? of_.recipe.section("device").plugin()
                                         : next.program().requests().more_devices[number - 1];
  const auto offer = [this, device = next.devices()[number], kind, plugin](std::string_view op) {
    return offered(*device, kind, plugin, op);
  };
  return {offer,           info.threads,     std::string(info.name.view()),
          std::move(kind), info.host_memory, info.asynchronous,
          info.tier};
}

// Returns the device's own kernel, or else an op plugin's for its kind.
OfferedKernel KernelOffers::offered(DeviceInterface& device, std::string_view kind, const std::string& plugin,
                                    std::string_view op) const {
  const std::scoped_lock one_asks(asking_);
  if (const KernelDef* own = device.kernel(op)) return {own, detail::concat("device plugin '", plugin, "'")};
  for (std::size_t i = 0; i < of_.ops.plugins.size(); ++i) {
    Array<DeviceKernel> kernels;
    raise(of_.ops.plugins[i]->kernels(&kernels));
    for (const DeviceKernel& kernel : kernels)
      if (kernel.device == kind && kernel.kernel.op == op)
        return {&kernel.kernel, detail::concat("op plugin '", of_.recipe.texts("plugins.ops")[i], "'")};
  }
  return {};
}

}  // namespace prun
