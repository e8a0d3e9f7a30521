// Trains recipes whose updates may begin before the norm of all gradients is known, for comparisons bit for
// bit.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "execute/binding.hpp"
#include "support/assembly_fixture.hpp"
#include "support/built_plugins.hpp"
#include "support/layouts.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test {

// Counts the calls that update speculatively; the first of each step may take so long that the norm is known
// before the others begin.
class SpeculativeCalls final : public Probe {
 public:
  SpeculativeCalls(const Plan& plan, std::chrono::milliseconds first_takes)
      : plan_(plan), first_takes_(first_takes) {}
  bool live() const noexcept override { return true; }
  void begin_call(std::int32_t, const Call& call, std::int64_t step, double) noexcept override {
    if (plan_.functions[call.function].kind != FunctionKind::speculate || call.instance == 0) return;
    ++calls;
    if (last_step_.exchange(step) != step) std::this_thread::sleep_for(first_takes_);
  }
  void end_call(std::int32_t, const Call&, std::int64_t, double) noexcept override {}

  std::atomic<int> calls = 0;

 private:
  const Plan& plan_;
  const std::chrono::milliseconds first_takes_;
  std::atomic<std::int64_t> last_step_ = -1;
};

struct ClippedRun {
  std::vector<double> losses, norms;
  std::vector<bool> kept;
  std::vector<std::vector<double>> parameters;  // by rank
  int speculated = 0, planned = 0;              // calls of all ranks in all steps

  int beyond(double limit) const {
    return static_cast<int>(
        std::count_if(norms.begin(), norms.end(), [&](double norm) { return norm > limit; }));
  }
};

inline ClippedRun trained_clipped(const Recipe& recipe, int steps,
                                  std::chrono::milliseconds first_takes = {}) {
  const auto world = static_cast<std::size_t>(mesh_of(recipe).world());
  ClippedRun result;
  result.parameters.resize(world);
  std::vector<std::unique_ptr<SpeculativeCalls>> counts(world);
  std::vector<int> planned(world);
  const Probes probes = [&](const Assembly& assembly, Communicators*) {
    const auto rank = static_cast<std::size_t>(assembly.rank());
    planned[rank] = steps * assembly.plan().speculated();
    counts[rank] = std::make_unique<SpeculativeCalls>(assembly.plan(), first_takes);
    return std::vector<Probe*>{counts[rank].get()};
  };
  const auto body = [&](Trainer& trainer) {
    const bool first = trainer.assembly().rank() == 0;
    for (int step = 0; step < steps; ++step) {
      const StepResult stepped = trainer.step();
      if (!first) continue;
      result.losses.push_back(stepped.loss);
      result.norms.push_back(stepped.grad_norm);
      result.kept.push_back(stepped.kept);
    }
    result.parameters[static_cast<std::size_t>(trainer.assembly().rank())] = parameters_of(trainer);
  };
  run_local_ranks(recipe, plugins().places(), body, probes);
  for (std::size_t rank = 0; rank < world; ++rank) {
    result.speculated += counts[rank]->calls;
    result.planned += planned[rank];
  }
  return result;
}

inline void expect_same(const ClippedRun& one, const ClippedRun& other, const std::string& of = "") {
  EXPECT_EQ(one.losses, other.losses) << of;
  EXPECT_EQ(one.norms, other.norms) << of;
  EXPECT_EQ(one.kept, other.kept) << of;
  EXPECT_TRUE(one.parameters == other.parameters) << of;
}

inline std::string everything_on_host(bool speculates) {
  return offloaded(true, true, true) + (speculates ? "" : "speculate = 'none'\n");
}

}  // namespace prun::test
