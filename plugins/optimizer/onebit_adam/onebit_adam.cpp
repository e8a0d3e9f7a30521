// 1-bit Adam, behind its warm-up, keeps the second moment as it is, and ranks sum their momentum, by
// precision.reduce = "1bit" in signs. The warm-up is a run with adamw, from whose checkpoint this one goes
// on.
#include "prun/plugin.hpp"

namespace prun {
namespace {

class OnebitAdam final : public Optimizer {
 public:
  explicit OnebitAdam(const Options& options)
      : betas_(options.numbers("betas")),
        eps_(options.number("eps")),
        weight_decay_(options.number("weight_decay")),
        frozen_at_(static_cast<double>(options.integer("frozen_at"))) {
    if (betas_.size() != 2)
      throw_error(ErrorCode::bad_input, "optimizer.betas takes two numbers, not ", betas_.size());
  }

  std::vector<std::string> states() override { return {"m", "v"}; }

  void update(Segment segment, const UpdateContext& c) override {
    const double decay = !c.decay ? 0 : c.weight_decay >= 0 ? c.weight_decay : weight_decay_;
    const Id step = c.seed == none ? none : c.step;
    const Id summand = segment.insert(FunctionKind::update, none, "momentum_summand",
                                      {c.gradient, c.states[0], c.clip}, 1, {{"beta", betas_[0]}})[0];
    const Id direction = segment.insert(FunctionKind::update, none, "frozen_direction",
                                        {summand, c.states[0], c.states[1], c.keep}, 1,
                                        {{"eps", eps_}, {"beta", betas_[1]}, {"frozen_at", frozen_at_}})[0];
    segment.insert(FunctionKind::update, none, "sgd",
                   {c.parameter, c.master, direction, none, c.lr, none, c.keep, step, c.seed}, 0,
                   {{"weight_decay", decay}, {"lr_scale", c.lr_scale}});
  }

 private:
  std::vector<double> betas_;
  double eps_, weight_decay_, frozen_at_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(optimizer, prun::OnebitAdam, "onebit_adam", "0.1.0",
            "1-bit Adam after its warmup: a frozen second moment, and momenta that ranks all-reduce as signs",
            "elementwise=yes; sums=update; begins=resumed; also=1bit_adam,onebitadam,1bitadam",
            "betas        | floats | [0.9, 0.95] | 0..0.999999 | Decay rate of the momentum, and that of the "
            "second moment while it was updated\n"
            "eps          | float  | 1e-8        | 0..1        | Epsilon added to the square root of the "
            "second moment\n"
            "weight_decay | float  | 0.1         | 0..10       | Weight decay, on matrices only (not on "
            "gains and biases)\n"
            "frozen_at    | int    | 0           | 0..         | Number of steps that the frozen second "
            "moment was made in, for bias correction as in adamw; 0: no correction, as in DeepSpeed\n");
