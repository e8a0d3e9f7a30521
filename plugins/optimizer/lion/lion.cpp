// Lion takes a step along the sign of a running gradient.
#include "prun/plugin.hpp"

namespace prun {
namespace {

class Lion final : public Optimizer {
 public:
  explicit Lion(const Options& options)
      : betas_(options.numbers("betas")), weight_decay_(options.number("weight_decay")) {
    if (betas_.size() != 2)
      throw_error(ErrorCode::bad_input, "optimizer.betas takes two numbers, not ", betas_.size());
  }

  std::vector<std::string> states() override { return {"momentum"}; }

  void update(Segment segment, const UpdateContext& c) override {
    const double decay = !c.decay ? 0 : c.weight_decay >= 0 ? c.weight_decay : weight_decay_;
    const Id scale = c.scales.size > 0 ? c.scales[0] : none, step = c.seed == none ? none : c.step;
    const Id direction =
        segment.insert(FunctionKind::update, none, "momentum",
                       {c.parameter, c.gradient, c.states[0], c.clip, c.keep, step, c.seed, scale}, 1,
                       {{"now", betas_[0]}, {"later", betas_[1]}, {"sign", 1.0}})[0];
    segment.insert(FunctionKind::update, none, "sgd",
                   {c.parameter, c.master, direction, none, c.lr, none, c.keep, step, c.seed}, 0,
                   {{"weight_decay", decay}, {"lr_scale", c.lr_scale}});
  }

 private:
  std::vector<double> betas_;
  double weight_decay_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(optimizer, prun::Lion, "lion", "0.1.0", "Lion: the sign of a momentum as the update",
            "elementwise=yes",
            "betas        | floats | [0.9, 0.99] | 0..0.999999 | Weight of the momentum in an update, and "
            "its decay rate\n"
            "weight_decay | float  | 0.1         | 0..10       | Weight decay, on matrices only (not on "
            "gains and biases)\n");
