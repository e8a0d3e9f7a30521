// Measures kernels where they run: one by one within training steps, with real values and the caches in the
// state that the kernel before left.
#pragma once

#include <map>

#include "estimate/costs.hpp"
#include "execute/executor.hpp"
#include "measure/progress.hpp"
#include "train/assemble/assembly.hpp"
#include "train/loop/trainer.hpp"

namespace prun {

// ------------------------------------------------------------------- kernel timer
// Times the kernels of a rank's plan while steps run: one by one in one step, and in the next whole calls, or
// several of them where a device takes them as one. Where kernels are small, calls are faster: a call's time
// is then shared out by what each kernel takes alone.

struct KernelTime {
  std::string device;  // is its name
  std::string op;
  DType type = DType::f32;
  std::string shape;  // that of shape_key()
  OpCost cost;
  double seconds = 0;      // is its share of a call, of trimmed means
  bool over_link = false;  // says that it goes between the recipe's device and the host's memory each time
};

// Returns the mean without the slowest tenth or, of few, the slowest: rare times are no basis for a
// prediction.
double trimmed_mean(std::vector<double> list);
// Returns the mean of the fastest quarter: the time while no or few others share links and the host's memory.
double fastest_mean(std::vector<double> list);

class KernelTimer final : public Probe {
 public:
  // Measures `steps` steps of each kind; later ones are not kept.
  KernelTimer(const Plan& plan, std::int64_t steps);

  bool each_kernel() const noexcept override { return true; }
  void begin_call(std::int32_t queue, const Call&, std::int64_t, double at) noexcept override {
    began_[static_cast<std::size_t>(queue)] = at;
  }
  void end_call(std::int32_t queue, const Call& call, std::int64_t step, double at) noexcept override;
  void end_kernel(std::int32_t queue, const Call& call, std::size_t index, double at) noexcept override;

  // Must be called while no step runs.
  void forget();
  // Returns each shape once by device; kernels of one shape count as often as they are launched.
  std::vector<KernelTime> result(const Assembly& assembly) const;

 private:
  struct Times {
    std::int64_t launches = 0;  // counts those of a step
    std::vector<double> seconds;

    void add(double one) noexcept;  // adds it where there is room
  };
  using ByShape =
      std::map<std::pair<std::string, std::string>, std::pair<KernelTime, double>>;  // has launches too

  Times& of(const Call& call, std::size_t index) noexcept;
  // States, by function and piece, the time of its kernels together over the sum of their times alone.
  using Shares = std::vector<std::vector<double>>;
  Shares shares() const;
  double alone(const Call& call) const;
  bool moves_beside_others(const Assembly& assembly, const PlannedStep& step) const;
  void add(const Assembly& assembly, const PlannedStep& step, const Times& times, double share,
           ByShape& by_shape) const;

  const Plan& plan_;
  std::vector<double> began_;              // by queue
  std::vector<std::size_t> first_;         // by function, within times_
  std::vector<Times> times_;               // by step of all functions
  std::vector<std::vector<Times>> calls_;  // by queue and position
};

// ------------------------------------------------------------------- kernel bench

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
