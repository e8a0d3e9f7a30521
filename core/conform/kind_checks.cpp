#include "conform/kind_checks.hpp"

#include "assemble/plugin_host.hpp"
#include "conform/data_check.hpp"
#include "conform/device_check.hpp"
#include "conform/observer_check.hpp"
#include "conform/op_checks.hpp"
#include "conform/optimizer_check.hpp"
#include "conform/strategy_check.hpp"
#include "conform/tiny_recipe.hpp"
#include "plan/pipeline/order.hpp"
#include "plan/pipeline/trial.hpp"
#include "plugin/traits.hpp"

namespace prun {
namespace {

template <class Interface>
Interface& as(const TriedPlugin& plugin) {
  return *static_cast<Interface*>(plugin.object);
}

Finding check_schedule(const TriedPlugin& plugin) {
  const bool split = trait_of(plugin.note, "backward") == "split";
  return {try_schedule(as<ScheduleInterface>(plugin), split, plugin.note.name)};
}

// One of the checks of an op plugin, with the CPU's kernels for all other ops.
auto of_ops(const std::vector<SearchPlace>& places, Finding (*check)(const OpsOnTrial& trial)) {
  return [=](const TriedPlugin& plugin) {
    const CpuKernels cpu(places);
    return check(ops_of(as<OpPluginInterface>(plugin), plugin.note.name, cpu.kernels(), plugin.doing));
  };
}

}  // namespace

std::vector<KindCheck> kind_checks(const std::vector<SearchPlace>& places) {
  return {
      {"schedule", "gives every small shape it accepts an order that is complete and ends", check_schedule},
      {"op",
       "has kernels that write all of their results, nothing beside them, and read no more than they are "
       "given",
       of_ops(places, check_memory)},
      {"op", "has kernels whose bits do not depend on threads", of_ops(places, check_threads)},
      {"op", "has gradients that agree with finite differences", of_ops(places, check_gradients)},
      {"op", "has rules whose marks agree with computing in parts", of_ops(places, check_marks)},
      {"strategy",
       "leaves every model's losses, gradients and parameters as one rank computes them, with ZeRO and "
       "without",
       [=](const TriedPlugin& plugin) { return check_strategy(plugin, places); }},
      {"optimizer",
       "updates what it is given, in the same bits each time, and nothing where it is told to keep",
       [=](const TriedPlugin& plugin) { return check_optimizer(plugin, places); }},
      {"data", "gives the same sample for the same number, whole and within its vocabulary", check_data},
      {"observer", "survives all that it may be told", check_observer},
      {"device", "gives memory, queues and kernels as its header says", check_device}};
}

}  // namespace prun
