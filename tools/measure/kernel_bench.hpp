// Measures kernels where they run: one by one within training steps, with real values and the caches in the
// state that the kernel before left.
#pragma once

#include "measure/kernel_timer.hpp"
#include "measure/progress.hpp"
#include "train/loop/trainer.hpp"

namespace prun {

// Times all kernels of a rank's plan, each shape once, in `steps` steps one by one and in as many together,
// or in fewer where they take long. Ranks compute without each other, `at_once` of them: they share the
// machine's memory.
std::vector<KernelTime> time_kernels(const Recipe& recipe, PluginHost& plugins, std::int64_t steps,
                                     std::int64_t at_once = 1, std::int64_t rank = 0);

// Measures what the executor adds on this device.
Overheads time_overheads(DeviceInterface& device);

// Fits formulas to a grid of small models that together use the ops in every type, with one thread, with all
// cores and with those of the rank whose place `plugins` has; and measures what the host's memory carries. As
// many models run at a time as the machine has cores for.
// `quick` uses that rank's threads alone, in fp32 and bf16, from the smaller models.
void bench_grid(PluginHost& plugins, CostTable& table, const Say& say, bool quick = false);

// Throws where the ranks that bench_recipe() starts need more than the system allows: it takes minutes to get
// there.
void make_room_for_timing(const Recipe& recipe, PluginHost& plugins);

// Times a recipe's own kernels as they are, and its exchanges where this machine has a core for each of its
// ranks, which share them as those of a run do, or their device wants a process for each; with several
// devices, it also measures what the host's memory carries. Elsewhere as many ranks compute as there are
// cores for. `command` is as for ask_ranks(); a process that is asked calls answer() with
// how_long_steps_take(timed_steps).
inline constexpr std::int64_t timed_steps = 12;
void bench_recipe(PluginHost& plugins, const Recipe& recipe, CostTable& table, const Say& say,
                  const std::vector<std::string>& command = {});

// Times the kernels of one rank alone, where it computes beside as many others as this machine has cores for.
void bench_rank(PluginHost& plugins, const Recipe& recipe, std::int64_t rank, CostTable& table);

}  // namespace prun
