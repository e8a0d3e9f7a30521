// Trains the one rank that layouts are compared with, or the few that differ where a strategy's state varies,
// and measures how far roundings come there.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "execute/binding.hpp"
#include "execute/plan_memory.hpp"
#include "train/assemble/assembly.hpp"
#include "train/loop/trainer.hpp"

namespace prun {

// ------------------------------------------------------------------- whole numbers
// Collects values of whole numbers that a rank's first step writes, as `prun verify` compares them: every
// one, of each layer and microbatch, with its place in the whole value. Kernels are watched as they end, so
// the device must block.

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

// ------------------------------------------------------------------- one rank

using Tensors = std::map<std::string, std::vector<double>>;

// Holds what the one rank computed, or several together.
struct Reference {
  std::vector<StepResult> steps;
  Tensors gradients, parameters;
  WrittenNumbers numbers;
};

// Returns an element of a type that parameters and gradients have.
double element_as_double(const std::byte* data, DType type, std::int64_t i);

// Names a state that strategies keep, with the rank's coordinates where it varies: ranks that have those in
// common have it alike. Nothing is returned for what is not compared: what adds up over ranks in parts of any
// size.
std::optional<std::string> compared_name(const Assembly& assembly, Id state, std::int32_t instance);

// Returns a value's name with the rank's coordinates on the axes along which the value varies.
std::string name_where_varying(const Assembly& assembly, std::string name, Id value);

// Calls body(name, data, type, whole, count) for each run of elements that a rank holds, of gradients, or of
// parameters and what strategies keep (KeptState::compared).
template <class Body>
void each_compared_run(Trainer& trainer, bool gradients, Body&& body) {
  const Assembly& assembly = trainer.assembly();
  assembly.each_parameter([&](Id parameter, std::int32_t instance) {
    if (gradients && assembly.program().value(parameter).gradient == none) return;
    const std::string name = name_where_varying(assembly, assembly.full_name(parameter, instance), parameter);
    each_held(assembly.program(), assembly.rank(), parameter, instance,
              gradients ? Kept::gradient : Kept::parameter, [&](const HeldRun& run) {
                body(name, run.read(trainer.memory()).data(), run.type, run.whole, run.count);
              });
  });
  const Program& program = assembly.program();
  if (!gradients)
    assembly.each_kept_state([&](Id id, std::int32_t instance) {
      const std::optional<std::string> name = compared_name(assembly, id, instance);
      if (!name) return;
      const DType type = program.value(id).dtype;
      each_run(program, assembly.rank(), id, instance, {id, type, 0, 0, program.local_elements(id)},
               [&](const HeldRun& run) {
                 body(*name, run.read(trainer.memory()).data(), run.type, run.whole, run.count);
               });
    });
}

// Holds a probe for each rank that is a thread of this process.
class NumberProbes {
 public:
  explicit NumberProbes(std::vector<std::string> patterns) : patterns_(std::move(patterns)) {}

  Probe* add(const Assembly& assembly) {
    const std::scoped_lock lock(mutex_);
    return (probes_[assembly.rank()] = std::make_unique<WholeNumberProbe>(assembly, patterns_)).get();
  }
  WholeNumberProbe* of(const Trainer& trainer) {
    const std::scoped_lock lock(mutex_);
    const auto found = probes_.find(trainer.assembly().rank());
    return found == probes_.end() ? nullptr : found->second.get();
  }
  // Returns none where no values are named: probes would have kernels run one by one.
  Probes probes() {
    if (patterns_.empty()) return {};
    return [this](const Assembly& assembly, Communicators*) { return std::vector<Probe*>{add(assembly)}; };
  }

 private:
  const std::vector<std::string> patterns_;
  std::mutex mutex_;
  std::map<std::int64_t, std::unique_ptr<WholeNumberProbe>> probes_;
};

// Returns the recipe without strategies of phase memory that change no result (trait tune=exact), as those
// that say where state lies: the one rank has everything in its device's memory, so that a tier is compared
// with what does not use it.
Recipe in_device_memory(const Recipe& recipe, PluginHost& plugins);

// Trains, on threads of this process if the recipe has several ranks; `disturb` is called before the first
// step, if it is set.
Reference train_reference(const Recipe& recipe, PluginHost& plugins, std::int64_t steps,
                          const std::vector<std::string>& exact,
                          const std::function<void(Trainer&)>& disturb = {});

// Says how far one rank's results move, at most, if all its parameters begin some roundings away.
struct Growth {
  std::vector<double> losses, norms;  // relative, by step
  std::map<std::string, double> gradients, parameters;
};

// Measures the growth once it is asked for, which any thread may do.
class MeasuredGrowth {
 public:
  explicit MeasuredGrowth(std::function<Growth()> measure) : measure_(std::move(measure)) {}

  const Growth& get() {
    std::call_once(once_, [&] { growth_ = measure_(); });
    return growth_;
  }

 private:
  const std::function<Growth()> measure_;
  std::once_flag once_;
  Growth growth_;
};
Growth growth_of(const Recipe& recipe, PluginHost& plugins, const Reference& reference);

// NaN must not pass as "no difference".
inline double worse(double difference) { return std::isnan(difference) ? INFINITY : difference; }
inline double relative(double value, double reference) {
  return worse(std::abs(value - reference) / std::max(std::abs(reference), 1e-300));
}

}  // namespace prun
