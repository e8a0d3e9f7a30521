// Implements a strategy that writes the ops of the plugin `mixture` into each block: behind the MLP a mixture
// of experts, and an op that reports the largest of the MLP's inner values.
#include "prun/plugin.hpp"

namespace prun {
namespace {

class Mixture final : public Strategy {
 public:
  explicit Mixture(const Options& options)
      : experts_(options.integer("experts")),
        shrinks_(options.flag("shrink")),
        folds_(options.flag("fold")),
        picks_(options.flag("pick")) {}

  void apply(Phase, ProgramRef program) override {
    for (const Segment& segment : program.segments()) {
      if (segment.info().name.view() == "step") begin_step(segment);
      if (segment.info().name.view() == "block") rewrite(segment);
    }
  }

 private:
  // All ranks know the term that is added to the loss, so it must be added once.
  void begin_step(const Segment& step) const {
    if (!folds_) return;
    step.insert(FunctionKind::begin, none, "copy", {step.runtime("lr")}, 1);
    step.program().replace_op(step.operations(FunctionKind::begin).back(), "zero", {step.runtime("largest")});
    step.insert(FunctionKind::finish, none, "add_once", {step.runtime("largest"), step.runtime("loss_sum")},
                0);
  }

  // The last op adds the MLP's result, which the op before it computes from the inner values.
  void rewrite(const Segment& block) const {
    const std::vector<Id> ops = block.operations(FunctionKind::forward);
    const ProgramRef program = block.program();
    const Id add = ops.back(), inner = program.op(ops[ops.size() - 2]).operands[0];
    const ValueInfo handed_on = program.value(block.info().outgoing);
    Id y = program.op(add).operands[1];
    const auto behind = [&](const char* kind, std::initializer_list<Id> inputs) {
      return block.insert(FunctionKind::forward, add, kind, inputs, 1)[0];
    };
    if (experts_ > 0) {
      const Id w = block.weight("experts.weight", {{"experts", experts_}, handed_on.dims[2]}, normal(1));
      y = behind("mixture", {y, w});
    }
    if (shrinks_) y = behind("shrink", {y, behind("largest_of", {inner})});
    if (picks_) y = behind("scale_by_index", {y, behind("pick", {inner})});
    if (folds_)
      block.insert(FunctionKind::forward, add, "fold_largest", {inner, block.runtime("largest")}, 0);
    program.replace_operand(add, 1, y);
  }

  std::int64_t experts_;
  bool shrinks_, folds_, picks_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(strategy, prun::Mixture, "mixture", "0.1.0", "Ops that prefer, and maxima, in each block",
            "phase=model",
            "experts | int  | 0 | 0.. | Experts of a mixture; 0: none\n"
            "shrink  | bool | false | | The MLP's output by the largest of its inner values\n"
            "fold    | bool | false | | The largest inner value of a step, added to the loss\n"
            "pick    | bool | false | | The MLP's output by which of its inner values is the largest\n");
