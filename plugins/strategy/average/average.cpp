// An exponential moving average (EMA) of the weights, kept beside them: a state like the optimizer's, so all
// that is done to those is done to it: shards, tiers, saves, layouts. Nothing that is trained depends on it.
#include "prun/plugin.hpp"

namespace prun {
namespace {

class Average final : public Strategy {
 public:
  explicit Average(const Options& options)
      : decay_(options.number("decay")), evaluate_(options.flag("evaluate")) {}

  void check(const Options& recipe, Problems problems) override {
    if (evaluate_ && recipe.integer("eval.every") == 0)
      problems.add("evaluate", "evaluate goes by evaluations, and there is none; set eval.every");
  }

  void apply(Phase, ProgramRef program) override {
    const AttrValue attrs[] = {{"decay", decay_}};
    program.optimizer_state({"average", "average_weights", {attrs, 1}, evaluate_});
  }

 private:
  double decay_;
  bool evaluate_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(
    strategy, prun::Average, "average", "0.1.0",
    "Keeps an exponential moving average (EMA) of the weights, read by --average of prun eval, generate "
    "and export",
    "phase=model; tune=changes; changes=decay; also=ema,swa",
    // NOLINTNEXTLINE(bugprone-suspicious-missing-comma): each option is one text on one line.
    "decay    | float | 0.999 | 0..0.999999 | Each update's weights count this many times as much as "
    "the next one's\n"
    "evaluate | bool  | false |             | Also evaluate the average during training, on the same "
    "batches (eval.every)\n");
