// ZeRO: the ranks of a data-parallel axis keep in parts what each of them would otherwise keep whole.
//   stage 1  optimizer state and master copies
//   stage 2  gradients too: summed over the ranks after each microbatch, each rank its part
//   stage 3  parameters too: gathered one block ahead of their use, forward and backward
#include "prun/plugin.hpp"

namespace prun {
namespace {

class Zero final : public Strategy {
 public:
  explicit Zero(const Options& options)
      : axis_(options.text("axis")), stage_(static_cast<int>(options.integer("stage"))) {}
  void apply(ProgramRef program) override { program.keep_in_parts(axis_, stage_); }

 private:
  std::string axis_;
  int stage_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(strategy, prun::Zero, "zero", "0.1.0", "Keeps optimizer state, gradients, parameters in parts",
            "phase=state",
            "axis  | string | dp | | Axis of the mesh whose ranks share them out\n"
            "stage | int | 1 | 1..3 | 1: optimizer state; 2: gradients too; 3: parameters too\n");
