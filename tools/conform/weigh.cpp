#include "conform/weigh.hpp"

namespace prun {
namespace {

struct Weigh {
  static constexpr const char* kind = "trial_weigh";
  static constexpr const char* help = "s = the sum of y * weights";
  static constexpr OperandDef operands[] = {{"y"}, {"weights"}, {"s", Access::write}};
  static void rule(OpShape& s) {
    s.scalar(2, s.operand[0].dtype);
    s.sum(0, 0, s.operand[0].rank);
  }
  static void gradient(const Gradient& g) { g.input(0, "trial_weighed", {g.operand(1), g.arrived(2)}); }
};

struct Weighed {
  static constexpr const char* kind = "trial_weighed";
  static constexpr const char* help = "dy = weights * ds";
  static constexpr OperandDef operands[] = {{"weights"}, {"ds"}, {"dy", Access::write}};
  static void rule(OpShape& s) { s.like(2, 0); }
};

template <class T>
T rounded(double x) {
  if constexpr (std::is_same_v<T, bf16>)
    return bf16(static_cast<float>(x));
  else
    return static_cast<T>(x);
}

template <class T>
void weigh(const KernelArgs& args, const KernelContext&) {
  const Tensor &y = args.operands[0], &weights = args.operands[1];
  double sum = 0;
  for (std::int64_t i = 0; i < y.elements(); ++i)
    sum += static_cast<double>(y.as<const T>()[i]) * static_cast<double>(weights.as<const T>()[i]);
  *args.operands[2].as<T>() = rounded<T>(sum);
}

template <class T>
void weighed(const KernelArgs& args, const KernelContext&) {
  const Tensor &weights = args.operands[0], &dy = args.operands[2];
  const T ds = *args.operands[1].as<const T>();
  for (std::int64_t i = 0; i < dy.elements(); ++i)
    dy.as<T>()[i] = static_cast<T>(weights.as<const T>()[i] * ds);
}

template <Kernel in_fp64, Kernel in_fp32, Kernel in_bf16>
Kernel select(const OpShape& shape) {
  switch (shape.operand[0].dtype) {
    case DType::f64: return in_fp64;
    case DType::f32: return in_fp32;
    case DType::bf16: return in_bf16;
    default: return nullptr;
  }
}

constexpr KernelDef kernels[] = {{Weigh::kind, select<weigh<double>, weigh<float>, weigh<bf16>>},
                                 {Weighed::kind, select<weighed<double>, weighed<float>, weighed<bf16>>}};

}  // namespace

void add_weigh_ops(OpRegistry& registry) {
  registry.add(op_def<Weigh>(), "prun");
  registry.add(op_def<Weighed>(), "prun");
}

KernelsOf with_weigh_kernels(KernelsOf others) {
  return [others = std::move(others)](std::string_view op) -> const KernelDef* {
    for (const KernelDef& kernel : kernels)
      if (op == kernel.op) return &kernel;
    return others(op);
  };
}

}  // namespace prun
