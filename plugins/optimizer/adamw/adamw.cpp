// AdamW keeps two moments per parameter and applies decoupled decay to matrices only.
#include "prun/plugin.hpp"

namespace prun {
namespace {

class AdamW final : public Optimizer {
 public:
  explicit AdamW(const Options& options)
      : betas_(options.numbers("betas")),
        eps_(options.number("eps")),
        weight_decay_(options.number("weight_decay")) {
    if (betas_.size() != 2)
      throw_error(ErrorCode::bad_input, "optimizer.betas takes two numbers, not ", betas_.size());
  }

  std::vector<std::string> states() override { return {"m", "v"}; }

  void update(Segment segment, const UpdateContext& c) override {
    const double decay = !c.decay ? 0 : c.weight_decay >= 0 ? c.weight_decay : weight_decay_;
    segment.insert(FunctionKind::update, none, "adamw",
                   {c.parameter, c.master, c.gradient, c.states[0], c.states[1], c.lr, c.step, c.clip, c.keep,
                    c.seed, scale(c, 0), scale(c, 1)},
                   0,
                   {{"beta1", betas_[0]},
                    {"beta2", betas_[1]},
                    {"eps", eps_},
                    {"weight_decay", decay},
                    {"lr_scale", c.lr_scale}});
  }

 private:
  static Id scale(const UpdateContext& c, std::size_t state) {
    return state < c.scales.size ? c.scales[state] : none;
  }

  std::vector<double> betas_;
  double eps_, weight_decay_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(
    optimizer, prun::AdamW, "adamw", "0.1.0", "Adam with decoupled weight decay",
    "elementwise=yes; also=adam,fused_adam,adamw_torch",
    "betas        | floats | [0.9, 0.95] | 0..0.999999 | Decay rates of the first and the second moment\n"
    "eps          | float  | 1e-8        | 0..1        | Epsilon added to the square root of the second "
    "moment\n"
    "weight_decay | float  | 0.1         | 0..10       | Weight decay, on matrices only (not on gains and "
    "biases)\n");
