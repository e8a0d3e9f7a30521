// Collects values of whole numbers that a rank's first step writes, as `prun verify` compares them: every
// one, of each layer and microbatch, with its place in the whole value. Kernels are watched as they end, so
// the device must block.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "execute/plan_memory.hpp"
#include "execute/probe.hpp"
#include "train/assemble/assembly.hpp"

namespace prun {

// Holds a rank's part of such a value, and where in the whole each number belongs: at its position where
// sequences have another order.
struct WholeNumbers {
  std::vector<std::int64_t> at, numbers;
};

// Maps "block.3.pick.index, microbatch 1" to the numbers that were written.
using WrittenNumbers = std::map<std::string, WholeNumbers>;

class WholeNumberProbe final : public Probe {
 public:
  // Watches values that one of the patterns matches ("block.pick.index", "*.index"); it throws where one
  // matches none, or where queues run their work later.
  WholeNumberProbe(const Assembly& assembly, std::vector<std::string> patterns);

  // Must be called before the first step. `memory` must outlive the steps.
  void watch(const PlanMemory& memory) { memory_ = &memory; }

  bool each_kernel() const noexcept override { return true; }
  void begin_call(std::int32_t queue, const Call& call, std::int64_t step, double at) noexcept override;
  void end_call(std::int32_t, const Call&, std::int64_t, double) noexcept override {}
  void end_kernel(std::int32_t queue, const Call& call, std::size_t index, double at) noexcept override;

  // Returns, once the first step is done, the numbers of activations, and those that the step has summed up.
  WrittenNumbers take();

 private:
  bool is_named(Id value) const;
  void note(const Call& call, const PlannedStep& step);
  void keep(const std::string& name, Id value, const Call& call, const Address& address);

  const Assembly& assembly_;
  const std::vector<std::string> patterns_;
  const PlanMemory* memory_ = nullptr;
  bool done_ = false;            // says that the first step is done
  std::map<Id, int> number_of_;  // numbers values of one name, by their order in their function
  WrittenNumbers written_;
  std::string failed_;
};

// Says how many numbers of one rank differ from those of the whole, which one rank has written, and which is
// the first that differs.
struct UnequalNumbers {
  std::int64_t count = 0;
  std::string where;
};
UnequalNumbers unequal(const WrittenNumbers& whole, const WrittenNumbers& own);

}  // namespace prun
