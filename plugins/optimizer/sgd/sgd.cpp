// Implements SGD, with momentum where the recipe sets it.
#include "prun/plugin.hpp"

namespace prun {
namespace {

class Sgd final : public Optimizer {
 public:
  explicit Sgd(const Options& options)
      : momentum_(options.number("momentum")), weight_decay_(options.number("weight_decay")) {}

  std::vector<std::string> states() override {
    return momentum_ > 0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>{};
  }

  void update(Segment segment, const UpdateContext& c) override {
    const double decay = !c.decay ? 0 : c.weight_decay >= 0 ? c.weight_decay : weight_decay_;
    segment.insert(FunctionKind::update, none, "sgd",
                   {c.parameter, c.master, c.gradient, momentum_ > 0 ? c.states[0] : none, c.lr, c.clip,
                    c.keep, c.seed == none ? none : c.step, c.seed},
                   0, {{"momentum", momentum_}, {"weight_decay", decay}, {"lr_scale", c.lr_scale}});
  }

 private:
  double momentum_, weight_decay_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(optimizer, prun::Sgd, "sgd", "0.1.0", "Stochastic gradient descent",
            "elementwise=yes; also=momentum",
            "momentum     | float | 0 | 0..0.999999 | Decay rate of the momentum; 0: no momentum\n"
            "weight_decay | float | 0 | 0..10       | Decoupled weight decay, on matrices only\n");
