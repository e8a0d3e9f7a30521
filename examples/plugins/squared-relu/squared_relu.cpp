// A new op: y = max(x, 0)^2, with its gradient and kernels for the CPU in fp32 and, for `prun verify`, fp64.
#include "prun/named_operands.hpp"
#include "prun/plugin.hpp"

namespace {

using namespace prun;

struct SquaredRelu {
  static constexpr const char* kind = "squared_relu";
  static constexpr const char* help = "max(x, 0)^2";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static void rule(RuleOf<SquaredRelu> s) { s.like("y", "x"); }
  static void gradient(GradientOf<SquaredRelu> g) {
    g.input("x", "squared_relu_grad", {g.arrived("y"), g["x"]});
  }
};

struct SquaredReluGrad {
  static constexpr const char* kind = "squared_relu_grad";
  static constexpr const char* help = "dx of squared_relu";
  static constexpr OperandDef operands[] = {{"dy"}, {"x"}, {"dx", Access::write}};
  static void rule(RuleOf<SquaredReluGrad> s) { s.like("dx", "dy"); }
};

template <class T>
void forward(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<SquaredRelu> op(args);
  const Tensor &x = op["x"], &y = op["y"];
  parallel_ranges(*context.workers, x.elements(), 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T positive = x.as<T>()[i] > 0 ? x.as<T>()[i] : 0;
      y.as<T>()[i] = positive * positive;
    }
  });
}

template <class T>
void backward(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<SquaredReluGrad> op(args);
  const Tensor &dy = op["dy"], &x = op["x"], &dx = op["dx"];
  parallel_ranges(*context.workers, x.elements(), 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      dx.as<T>()[i] = x.as<T>()[i] > 0 ? 2 * x.as<T>()[i] * dy.as<T>()[i] : 0;
  });
}

class Plugin final : public OpPlugin {
 public:
  explicit Plugin(const Options&) {}
  std::vector<OpDef> ops() override { return {op_def<SquaredRelu>(), op_def<SquaredReluGrad>()}; }
  std::vector<DeviceKernel> kernels() override {
    return {{"cpu",
             {"squared_relu", [](const OpShape& s) { return by_type(s, forward<float>, forward<double>); }}},
            {"cpu", {"squared_relu_grad", [](const OpShape& s) {
                       return by_type(s, backward<float>, backward<double>);
                     }}}};
  }
  std::vector<OpExample> examples() override {
    return {OpExample("squared_relu").values(0, {{"batch", 2}, {"seq", 16}, {"hidden", 512}})};
  }

 private:
  // Null: there is none.
  static Kernel by_type(const OpShape& s, Kernel fp32, Kernel fp64) {
    const DType type = s.operand[0].dtype;
    return type == DType::f32 ? fp32 : type == DType::f64 ? fp64 : nullptr;
  }
};

}  // namespace

PRUN_PLUGIN(op, Plugin, "squared-relu", "1.0.0", "The squared_relu op", "", "");
