// A mistake: the gradients that ranks sum are divided by their number, as where each rank's loss is a mean.
// Here the scale of the loss counts the targets of all ranks already.
#include "prun/plugin.hpp"

namespace {

using namespace prun;

class Averaged final : public Strategy {
 public:
  explicit Averaged(const Options& options) : axis_(options.text("axis")) {}

  void apply(Phase, ProgramRef program) override {
    const double share = 1.0 / static_cast<double>(program.axis(axis_).extent);
    for (const Segment& segment : program.segments())
      for (const Id op : segment.operations(FunctionKind::forward)) {
        if (program.op(op).kind.view() != "lm_head") continue;
        const Id scale = program.op(op).operands[3];
        program.replace_operand(
            op, 3, segment.insert(FunctionKind::forward, op, "scale", {scale}, 1, {{"factor", share}})[0]);
      }
    program.split("seq", axis_);
  }

 private:
  std::string axis_;
};

}  // namespace

PRUN_PLUGIN(strategy, Averaged, "averaged", "1.0.0", "Sequences split, gradients averaged",
            "phase=shard; conflicts=tensor,gather-sequence",
            "axis | string | cp | | Axis of the mesh to split sequences over\n");
