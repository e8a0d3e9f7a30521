// The ops of error feedback: a gradient on a grid, and what that leaves over. Kernels for the CPU.
#include <cmath>

#include "prun/plugin.hpp"

namespace {

using namespace prun;

struct ToGrid {
  static constexpr const char* kind = "to_grid";
  static constexpr const char* help = "y = x rounded to a multiple of `step`; 0 where x is not finite";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr AttrDef attrs[] = {real_attr("step", 1)};
  static void rule(OpShape& s) { s.like(1, 0); }
};

// A step that has gone wrong is not kept, and must not spoil what the next one begins with.
struct KeepRest {
  static constexpr const char* kind = "keep_rest";
  static constexpr const char* help = "rest = x - y where that is finite; elsewhere it stays";
  static constexpr Effect effect = Effect::update;
  static constexpr OperandDef operands[] = {{"x"}, {"y"}, {"rest", Access::update}};
  static void rule(OpShape&) {}
};

template <class T>
void to_grid(const KernelArgs& args, const KernelContext&) {
  const Tensor &x = args.operands[0], &y = args.operands[1];
  const T step = static_cast<T>(args.attrs[0].f);
  for (std::int64_t i = 0; i < x.elements(); ++i)
    y.as<T>()[i] = std::isfinite(x.as<T>()[i]) ? std::nearbyint(x.as<T>()[i] / step) * step : T(0);
}

template <class T>
void keep_rest(const KernelArgs& args, const KernelContext&) {
  const Tensor &x = args.operands[0], &y = args.operands[1], &rest = args.operands[2];
  for (std::int64_t i = 0; i < x.elements(); ++i)
    if (const T left = x.as<T>()[i] - y.as<T>()[i]; std::isfinite(left)) rest.as<T>()[i] = left;
}

template <Kernel in_double, Kernel in_float>
Kernel choose(const OpShape& s) {
  const DType type = s.operand[0].dtype;
  return type == DType::f64 ? in_double : type == DType::f32 ? in_float : nullptr;
}

class GridOps final : public OpPlugin {
 public:
  explicit GridOps(const Options&) {}
  std::vector<OpDef> ops() override { return {op_def<ToGrid>(), op_def<KeepRest>()}; }
  std::vector<DeviceKernel> kernels() override {
    return {{"cpu", {"to_grid", choose<to_grid<double>, to_grid<float>>}},
            {"cpu", {"keep_rest", choose<keep_rest<double>, keep_rest<float>>}}};
  }
  std::vector<OpExample> examples() override {
    const Dim rows{"rows", 8}, columns{"columns", 6};
    return {OpExample("to_grid").values(0, {rows, columns}).attr("step", 0.25),
            OpExample("keep_rest").values(0, {rows, columns}).values(1, {rows, columns})};
  }
};

}  // namespace

PRUN_PLUGIN(op, GridOps, "grid", "1.0.0", "Numbers on a grid, and what that leaves over", "", "");
