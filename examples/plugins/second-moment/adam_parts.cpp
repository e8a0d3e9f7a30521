// The two halves of Adam as ops: the second moment, and the step that reads it. Kernels for the CPU, of
// weights in fp64 and fp32 that have no master copy.
#include <cmath>

#include "prun/plugin.hpp"

namespace {

using namespace prun;

struct SecondMoment {
  static constexpr const char* kind = "second_moment";
  static constexpr const char* help = "v = beta2 v + (1 - beta2) (clip gradient)^2, unless keep is 0";
  static constexpr Effect effect = Effect::update;
  static constexpr OperandDef operands[] = {{"gradient"}, {"v", Access::update}, {"clip"}, {"keep"}};
  static constexpr AttrDef attrs[] = {real_attr("beta2", 0.999)};
  static void rule(OpShape&) {}  // each element by itself, so that all may be split
};

struct AdamStep {
  static constexpr const char* kind = "adam_step";
  static constexpr const char* help = "Adam with decoupled weight decay, with v as it is behind the update";
  static constexpr Effect effect = Effect::update;
  static constexpr OperandDef operands[] = {{"parameter", Access::update},
                                            {"master", Access::update, true},
                                            {"gradient"},
                                            {"m", Access::update},
                                            {"v"},
                                            {"lr"},
                                            {"step"},
                                            {"clip"},
                                            {"keep"}};
  static constexpr AttrDef attrs[] = {real_attr("beta1", 0.9), real_attr("beta2", 0.999),
                                      real_attr("eps", 1e-8), real_attr("weight_decay", 0),
                                      real_attr("lr_scale", 1)};
  static void rule(OpShape&) {}
};

template <class T>
void second_moment(const KernelArgs& args, const KernelContext& context) {
  if (*args.operands[3].as<double>() == 0) return;
  const double beta = args.attrs[0].f, clip = *args.operands[2].as<double>();
  const T* const g = args.operands[0].as<T>();
  T* const v = args.operands[1].as<T>();
  parallel_ranges(*context.workers, args.operands[1].elements(), 4096,
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t i = begin; i < end; ++i) {
                      const double x = clip * static_cast<double>(g[i]);
                      v[i] = static_cast<T>(beta * static_cast<double>(v[i]) + (1 - beta) * x * x);
                    }
                  });
}

template <class T>
void adam_step(const KernelArgs& args, const KernelContext& context) {
  const Tensor* const o = args.operands;
  if (*o[8].as<double>() == 0) return;
  const double beta1 = args.attrs[0].f, step = *o[6].as<double>(), clip = *o[7].as<double>(),
               lr = *o[5].as<double>() * args.attrs[4].f, first = 1 - std::pow(beta1, step),
               second = 1 - std::pow(args.attrs[1].f, step);
  parallel_ranges(*context.workers, o[0].elements(), 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      T &p = o[0].as<T>()[i], &m = o[3].as<T>()[i];
      m = static_cast<T>(beta1 * static_cast<double>(m) +
                         (1 - beta1) * clip * static_cast<double>(o[2].as<T>()[i]));
      const double size = std::sqrt(static_cast<double>(o[4].as<T>()[i]) / second) + args.attrs[2].f;
      p = static_cast<T>(static_cast<double>(p) - lr * (static_cast<double>(m) / first / size +
                                                        args.attrs[3].f * static_cast<double>(p)));
    }
  });
}

// Null: there is none, which the planner says by op and types.
template <class InDouble, class InFloat>
Kernel choose(const OpShape& s, std::initializer_list<int> operands, InDouble in_double, InFloat in_float) {
  const DType type = s.operand[0].dtype;
  for (const int i : operands)
    if (s.operand[i].dtype != type) return nullptr;
  return type == DType::f64 ? static_cast<Kernel>(in_double) : type == DType::f32 ? in_float : nullptr;
}

class AdamParts final : public OpPlugin {
 public:
  explicit AdamParts(const Options&) {}
  std::vector<OpDef> ops() override { return {op_def<SecondMoment>(), op_def<AdamStep>()}; }
  std::vector<DeviceKernel> kernels() override {
    return {
        {"cpu",
         {SecondMoment::kind,
          [](const OpShape& s) { return choose(s, {1}, second_moment<double>, second_moment<float>); }}},
        {"cpu",
         {AdamStep::kind, [](const OpShape& s) {
            return s.operand[1].present ? nullptr : choose(s, {2, 3, 4}, adam_step<double>, adam_step<float>);
          }}}};
  }
  std::vector<OpExample> examples() override {
    const Dim rows{"rows", 16}, columns{"columns", 64};
    return {OpExample(SecondMoment::kind)
                .values(0, {rows, columns})
                .values(1, {rows, columns})
                .scalar(2, 0.5)
                .scalar(3, 1),
            OpExample(AdamStep::kind)
                .values(0, {rows, columns})
                .values(2, {rows, columns})
                .values(3, {rows, columns})
                .values(4, {rows, columns})
                .scalar(5, 1e-3)
                .scalar(6, 3)
                .scalar(7, 0.5)
                .scalar(8, 1)};
  }
};

}  // namespace

PRUN_PLUGIN(op, AdamParts, "adam-parts", "1.0.0", "The two halves of Adam", "", "");
