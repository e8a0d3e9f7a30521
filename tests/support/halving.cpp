// Implements a third party's optimizer: its update is two ops, of which one makes what the other reads.
#include "prun/plugin.hpp"

namespace prun {
namespace {

class Halving final : public Optimizer {
 public:
  explicit Halving(const Options&) {}

  std::vector<std::string> states() override { return {"slow"}; }

  void update(Segment segment, const UpdateContext& c) override {
    const Id half =
        segment.insert(FunctionKind::update, none, "scale", {c.gradient}, 1, {{"factor", 0.5}})[0];
    segment.insert(FunctionKind::update, none, "sgd",
                   {c.parameter, c.master, half, c.states[0], c.lr, c.clip, c.keep,
                    c.seed == none ? none : c.step, c.seed},
                   0, {{"momentum", 0.5}, {"weight_decay", 0.0}, {"lr_scale", c.lr_scale}});
  }
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(optimizer, prun::Halving, "halving", "0.1.0", "Half of each gradient, with momentum",
            "elementwise=yes", "");
