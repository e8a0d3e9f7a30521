#include "conform/kind_checks.hpp"

#include "conform/comm_check.hpp"
#include "conform/data_check.hpp"
#include "conform/device_check.hpp"
#include "conform/model_check.hpp"
#include "conform/observer_check.hpp"
#include "conform/op_checks.hpp"
#include "conform/optimizer_check.hpp"
#include "conform/strategy_check.hpp"
#include "conform/tiny_recipe.hpp"
#include "conform/trial.hpp"
#include "plan/pipeline/read_schedule.hpp"
#include "plugin/traits.hpp"
#include "train/assemble/plugin_host.hpp"
#include "train/assemble/program_writer.hpp"

namespace prun {
namespace {

template <class Interface>
Interface& as(const TriedPlugin& plugin) {
  return *static_cast<Interface*>(plugin.object);
}

CheckFinding check_schedule(const TriedPlugin& plugin) {
  return {try_schedule(as<ScheduleInterface>(plugin), schedule_traits(plugin.note), plugin.note.name)};
}

// Wraps one of the checks of an op plugin, with the CPU's kernels for all other ops.
auto of_ops(const std::vector<SearchPlace>& places, CheckFinding (*check)(const OpsOnTrial& trial)) {
  return [=](const TriedPlugin& plugin) {
    const CpuKernels cpu(places);
    return check(ops_of(as<OpPluginInterface>(plugin), plugin.note.name, cpu.kernels(), plugin.doing));
  };
}

}  // namespace

std::vector<KindCheck> kind_checks(const std::vector<SearchPlace>& places, const std::string& given,
                                   const std::optional<std::filesystem::path>& recipe) {
  return {
      {"model", "writes the same program each time, in which every parameter reaches the loss",
       check_model_program},
      {"model", "has gradients that agree with finite differences of its loss",
       [=](const TriedPlugin& plugin) { return check_model_gradients(plugin, places, given); }},
      {"model", "is built or refused in words with each option at its ends",
       [=](const TriedPlugin& plugin) { return check_model_options(plugin, given); }},
      {"schedule", "gives every small shape it accepts an order that is complete and ends", check_schedule},
      {"op",
       "has kernels that write all of their results, nothing beside them, and read no more than they are "
       "given",
       of_ops(places, check_memory)},
      {"op", "has kernels whose bits do not depend on threads", of_ops(places, check_threads)},
      {"op", "has gradients that agree with finite differences", of_ops(places, check_gradients)},
      {"op", "has rules whose marks agree with computing in parts", of_ops(places, check_marks)},
      {"op", "has kernels for other devices that compute what those for the CPU do",
       [=](const TriedPlugin& plugin) { return check_kernels_elsewhere(plugin, places); }},
      {"strategy",
       "leaves every model's losses, gradients and parameters as one rank computes them, with ZeRO and "
       "without",
       [=](const TriedPlugin& plugin) { return check_strategy(plugin, places, given, recipe); }},
      {"optimizer",
       "updates what it is given, in the same bits each time, and nothing where it is told to keep",
       [=](const TriedPlugin& plugin) { return check_optimizer(plugin, places); }},
      {"data", "gives the same sample for the same number, whole and within its vocabulary", check_data},
      {"observer", "survives all that it may be told", check_observer},
      {"device", "gives memory, queues and kernels as its header says", check_device},
      {"device", "has kernels that compute what those of the device 'cpu' do",
       [=](const TriedPlugin& plugin) { return check_device_kernels(plugin, places); }},
      {"comm", "does every exchange of two and three ranks as it is defined, and counts its bytes",
       check_comm},
      {"comm", "lets a rank go that waits for another, once it is told to", check_comm_abort}};
}

}  // namespace prun
