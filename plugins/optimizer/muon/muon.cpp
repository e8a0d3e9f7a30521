// Muon steps along the running gradient of a matrix, its singular values all brought near 1 by Newton-Schulz.
// Another optimizer updates parameters that are no matrix: [[optimizer.group]] of = "others", plugin =
// "adamw".
#include <cmath>

#include "prun/plugin.hpp"

namespace prun {
namespace {

class Muon final : public Optimizer {
 public:
  explicit Muon(const Options& options)
      : momentum_(options.number("momentum")),
        nesterov_(options.flag("nesterov")),
        steps_(static_cast<double>(options.integer("steps"))),
        coefficients_(options.numbers("coefficients")),
        eps_(options.number("eps")),
        narrow_(options.text("iteration") == "bf16"),
        scale_(options.text("scale") == "rms"     ? 2
               : options.text("scale") == "shape" ? 1
                                                  : 0),
        weight_decay_(options.number("weight_decay")) {
    if (coefficients_.size() != 3)
      throw_error(ErrorCode::bad_input, "muon.coefficients takes three numbers, not ", coefficients_.size());
  }

  std::vector<std::string> states() override { return {"momentum"}; }

  void update(Segment segment, const UpdateContext& c) override {
    const double decay = !c.decay ? 0 : c.weight_decay >= 0 ? c.weight_decay : weight_decay_;
    const Id scale = c.scales.size > 0 ? c.scales[0] : none, step = c.seed == none ? none : c.step;
    // This is Nesterov's: it uses the gradient as it will be kept, once more.
    const Id direction =
        segment.insert(FunctionKind::update, none, "momentum",
                       {c.parameter, c.gradient, c.states[0], c.clip, c.keep, step, c.seed, scale}, 1,
                       {{"now", nesterov_ ? momentum_ * momentum_ : momentum_}, {"later", momentum_}})[0];
    segment.insert(FunctionKind::update, none, "sgd",
                   {c.parameter, c.master, orthogonal(segment, c.parameter, direction), none, c.lr, none,
                    c.keep, step, c.seed},
                   0, {{"weight_decay", decay}, {"lr_scale", c.lr_scale}});
  }

 private:
  Id orthogonal(Segment segment, Id parameter, Id direction) const {
    const Matrices made = segment.program().matrices(parameter);
    const bool narrow = narrow_ && segment.program().value(direction).dtype == DType::f32;
    return segment.insert(FunctionKind::update, none, "orthogonalize", {direction, none}, 1,
                          {{"batch", static_cast<double>(made.batch)},
                           {"columns", static_cast<double>(made.columns)},
                           {"cut1", static_cast<double>(made.cuts[0])},
                           {"cut2", static_cast<double>(made.cuts[1])},
                           {"cut3", static_cast<double>(made.cuts[2])},
                           {"steps", steps_},
                           {"a", coefficients_[0]},
                           {"b", coefficients_[1]},
                           {"c", coefficients_[2]},
                           {"eps", eps_},
                           {"scale", scale_},
                           {"narrow", narrow ? 1.0 : 0.0}})[0];
  }

  double momentum_;
  bool nesterov_;
  double steps_;
  std::vector<double> coefficients_;
  double eps_;
  bool narrow_;
  double scale_, weight_decay_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(optimizer, prun::Muon, "muon", "0.1.0", "Muon: orthogonalized momentum of matrices as the update",
            "whole=matrices",
            "momentum     | float  | 0.95 | 0..0.999999 | Decay rate of the momentum\n"
            "nesterov     | bool   | true |        | Use Nesterov momentum\n"
            "steps        | int    | 5    | 1..20  | Newton-Schulz iterations\n"
            "coefficients | floats | [3.4445, -4.775, 2.0315] | -100..100 | Newton-Schulz coefficients: of "
            "x, of x x' x and of (x x')^2 x\n"
            "eps          | float  | 1e-7 | 0..1   | Minimum norm that a matrix is divided by\n"
            "iteration    | choice | bf16 | bf16,fp32 | Format of the factors in Newton-Schulz products, "
            "with sums in fp32; if state is fp64, all of it is fp64\n"
            "scale        | choice | rms  | rms,shape,none | Scale of updates: rms: 0.2 sqrt(longer side), "
            "to reuse AdamW's learning rate and decay; shape: sqrt(max(1, rows / columns)); none: 1\n"
            "weight_decay | float  | 0.1  | 0..10  | Decoupled weight decay\n");
