// An optimizer that is written in an op of another plugin: Lion, by lion_update.
#include "prun/plugin.hpp"

namespace {

using namespace prun;

class Lion final : public Optimizer {
 public:
  explicit Lion(const Options& options)
      : beta1_(options.number("beta1")),
        beta2_(options.number("beta2")),
        weight_decay_(options.number("weight_decay")) {}

  std::vector<std::string> states() override { return {"momentum"}; }

  void update(Segment segment, const UpdateContext& c) override {
    const double decay = !c.decay ? 0 : c.weight_decay >= 0 ? c.weight_decay : weight_decay_;
    segment.insert(FunctionKind::update, none, "lion_update",
                   {c.parameter, c.master, c.gradient, c.states[0], c.lr, c.clip, c.keep}, 0,
                   {{"beta1", beta1_}, {"beta2", beta2_}, {"weight_decay", decay}, {"lr_scale", c.lr_scale}});
  }

 private:
  double beta1_, beta2_, weight_decay_;
};

}  // namespace

// Each element is updated by itself, so that ranks may keep state in parts (strategy zero).
PRUN_PLUGIN(optimizer, Lion, "lion", "1.0.0", "Lion: the sign of a momentum", "elementwise=yes",
            "beta1        | float | 0.9  | 0..0.999999 | Weight of the momentum in an update\n"
            "beta2        | float | 0.99 | 0..0.999999 | Decay rate of the momentum\n"
            "weight_decay | float | 0.1  | 0..10       | Decoupled weight decay, on matrices only\n");
