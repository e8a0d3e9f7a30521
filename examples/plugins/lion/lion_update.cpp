// An update op: Lion, which moves each weight by the sign of its momentum mixed with the gradient. Kernels
// for the CPU, of weights in fp64 and fp32, and in bf16 with a master copy in fp32, whole or split.
#include "prun/plugin.hpp"
#include "prun/split_master.hpp"

namespace {

using namespace prun;

struct LionUpdate {
  static constexpr const char* kind = "lion_update";
  static constexpr const char* help =
      "p -= lr (sign(beta1 m + (1 - beta1) g) + decay p), m = beta2 m + (1 - beta2) g";
  static constexpr Effect effect = Effect::update;  // what it changes outlives the step
  static constexpr OperandDef operands[] = {{"parameter", Access::update},
                                            {"master", Access::update, true},
                                            {"gradient"},
                                            {"momentum", Access::update},
                                            {"lr"},
                                            {"clip"},
                                            {"keep"}};
  static constexpr AttrDef attrs[] = {real_attr("beta1", 0.9), real_attr("beta2", 0.99),
                                      real_attr("weight_decay", 0), real_attr("lr_scale", 1)};
  static void rule(OpShape&) {}  // no output; each element by itself, so that all may be split
};

struct Lion {
  double lr, clip, beta1, beta2, decay;

  explicit Lion(const KernelArgs& args)
      : lr(*args.operands[4].as<const double>() * args.attrs[3].f),
        clip(*args.operands[5].as<const double>()),
        beta1(args.attrs[0].f),
        beta2(args.attrs[1].f),
        decay(args.attrs[2].f) {}

  double moved(double weight, double momentum, double gradient) const {
    const double mixed = beta1 * momentum + (1 - beta1) * gradient;
    return weight - lr * ((mixed > 0) - (mixed < 0) + decay * weight);
  }
};

// Weights, whichever way they are kept: what updates compute with, and what is written back.
template <class T>
struct Alone {
  explicit Alone(const KernelArgs& args) : p(args.operands[0].as<T>()) {}
  double weight(std::int64_t i) const { return static_cast<double>(p[i]); }
  void set(std::int64_t i, double value) const { p[i] = static_cast<T>(value); }
  T* p;
};

struct WithMaster {
  explicit WithMaster(const KernelArgs& args)
      : p(args.operands[0].as<std::uint16_t>()), master(args.operands[1].as<float>()) {}
  double weight(std::int64_t i) const { return master[i]; }
  void set(std::int64_t i, double value) const {
    master[i] = static_cast<float>(value);
    p[i] = rounded_half(master[i]);
  }
  std::uint16_t* p;  // bits of a bf16
  float* master;
};

struct Split {
  explicit Split(const KernelArgs& args)
      : p(args.operands[0].as<std::uint16_t>()), low(args.operands[1].as<std::uint16_t>()) {}
  double weight(std::int64_t i) const { return joined_halves(p[i], low[i]); }
  void set(std::int64_t i, double value) const {
    const auto whole = static_cast<float>(value);
    p[i] = rounded_half(whole);
    low[i] = low_half(whole);
  }
  std::uint16_t *p, *low;
};

template <class Weights, class Gradient, class Momentum>
void update(const KernelArgs& args, const KernelContext& context) {
  if (*args.operands[6].as<const double>() == 0) return;  // keep: leave all as it is
  const Lion lion(args);
  const Weights weights(args);
  const auto* const g = args.operands[2].as<const Gradient>();
  auto* const m = args.operands[3].as<Momentum>();
  parallel_ranges(
      *context.workers, args.operands[0].elements(), 4096, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const double gradient = lion.clip * static_cast<double>(g[i]), momentum = static_cast<double>(m[i]);
          weights.set(i, lion.moved(weights.weight(i), momentum, gradient));
          m[i] = static_cast<Momentum>(lion.beta2 * momentum + (1 - lion.beta2) * gradient);
        }
      });
}

// Null: there is none, which the planner says by op and types.
Kernel select(const OpShape& s) {
  const DType p = s.operand[0].dtype, g = s.operand[2].dtype, m = s.operand[3].dtype;
  const bool alone = !s.operand[1].present && p == g && p == m;
  if (alone && p == DType::f64) return update<Alone<double>, double, double>;
  if (alone && p == DType::f32) return update<Alone<float>, float, float>;
  if (p != DType::bf16 || m != DType::f32 || g != DType::f32 || !s.operand[1].present) return nullptr;
  if (s.operand[1].dtype == DType::f32) return update<WithMaster, float, float>;
  return s.operand[1].dtype == DType::u16 ? update<Split, float, float> : nullptr;
}

class LionUpdateOp final : public OpPlugin {
 public:
  explicit LionUpdateOp(const Options&) {}
  std::vector<OpDef> ops() override { return {op_def<LionUpdate>()}; }
  std::vector<DeviceKernel> kernels() override { return {{"cpu", {LionUpdate::kind, select, nullptr}}}; }
  std::vector<OpExample> examples() override {
    const Dim rows{"rows", 16}, columns{"columns", 512};
    return {OpExample(LionUpdate::kind)
                .values(0, {rows, columns})
                .values(2, {rows, columns})
                .values(3, {rows, columns})
                .scalar(4, 1e-3)
                .scalar(5, 0.5)
                .scalar(6, 1)
                .attr("weight_decay", 0.1)};
  }
};

}  // namespace

PRUN_PLUGIN(op, LionUpdateOp, "lion-update", "1.0.0", "The update of the optimizer Lion", "", "");
