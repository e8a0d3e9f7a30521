// Times the kernels of a rank's plan while steps run: one by one in one step, and in the next whole calls, or
// several of them where a device takes them as one. Where kernels are small, calls are faster: a call's time
// is then shared out by what each kernel takes alone.
#pragma once

#include <map>

#include "estimate/costs.hpp"
#include "execute/executor.hpp"
#include "train/assemble/assembly.hpp"

namespace prun {

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

}  // namespace prun
