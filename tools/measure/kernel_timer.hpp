// Times the kernels of a rank's plan while steps run: one by one in one step, and in the next whole calls, or
// several of them where a device takes them as one. Where kernels are small, that is faster: what they take
// then is shared out by what each takes alone.
#pragma once

#include <map>

#include "execute/executor.hpp"
#include "simulate/costs.hpp"
#include "train/assemble/assembly.hpp"

namespace prun {

struct KernelTime {
  std::string device;  // its name
  std::string op;
  DType type = DType::f32;
  std::string shape;  // shape_key()
  OpCost cost;
  double seconds = 0;      // its share of a call, of trimmed means
  bool over_link = false;  // each time between the recipe's device and the host's memory
};

// On average, but for the slowest tenth or, of few, the slowest: what is rare is no basis for a prediction.
double trimmed_mean(std::vector<double> list);
// Returns the mean of the fastest quarter: what it takes while none or few share links and the host's memory
// with it.
double fastest_mean(std::vector<double> list);

class KernelTimer final : public Probe {
 public:
  // Measures `steps` steps of either number, beyond which nothing is kept.
  KernelTimer(const Plan& plan, std::int64_t steps);

  bool each_kernel() const noexcept override { return true; }
  void begin_call(std::int32_t queue, const Call&, std::int64_t, double at) noexcept override {
    began_[static_cast<std::size_t>(queue)] = at;
  }
  void end_call(std::int32_t queue, const Call& call, std::int64_t step, double at) noexcept override;
  void end_kernel(std::int32_t queue, const Call& call, std::size_t index, double at) noexcept override;

  // Is called while no step runs.
  void forget();
  // Returns each shape once by device; those of one shape count as often as they are launched.
  std::vector<KernelTime> result(const Assembly& assembly) const;

 private:
  struct Times {
    std::int64_t launches = 0;  // a step
    std::vector<double> seconds;

    void add(double one) noexcept;  // where there is room
  };
  using ByShape =
      std::map<std::pair<std::string, std::string>, std::pair<KernelTime, double>>;  // and launches

  Times& of(const Call& call, std::size_t index) noexcept;
  // States, by function and piece, what its kernels take together, of what they take alone.
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
