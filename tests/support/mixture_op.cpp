// Implements ops with traits that few models need: one that prefers to split its experts, one whose result is
// a maximum over what it is split along, one that folds a maximum over a step's microbatches, and one whose
// result is whole numbers. The kernels are as plain as can be.
#include <algorithm>
#include <cmath>

#include "prun/plugin.hpp"

namespace prun {
namespace {

// ------------------------------------------------ y = sum over experts e of x * w[e] / (1 + e)

struct Mixture {
  static constexpr const char* kind = "mixture";
  static constexpr const char* help = "a weighted sum over experts";
  static constexpr OperandDef operands[] = {{"x"}, {"w"}, {"y", Access::write}};
  static void rule(OpShape& s) {
    s.like(2, 0);
    s.sum(1, 0, 1);
    s.prefer(s.operand[1].dims[0].name);
  }
  static void gradient(const Gradient& g) {
    g.input(0, "mixture", {g.arrived(2), g.operand(1)});
    g.weight({1}, "mixture_grad", {g.operand(0), g.arrived(2)});
  }
};

struct MixtureGrad {
  static constexpr const char* kind = "mixture_grad";
  static constexpr const char* help = "the gradient of its weights";
  static constexpr OperandDef operands[] = {{"x"}, {"dy"}, {"dw", Access::update}};
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) {
    s.sum(0, 0, 2);
    s.prefer(s.operand[2].dims[0].name);
  }
};

template <class T>
T factor(const Tensor& w, std::int64_t expert) {
  return T(1) / static_cast<T>(1 + w.start[0] + expert);
}

template <class T>
void mixture(const KernelArgs& args, const KernelContext&) {
  const Tensor &x = args.operands[0], &w = args.operands[1], &y = args.operands[2];
  const std::int64_t width = w.dim[1];
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    T sum = 0;
    for (std::int64_t e = 0; e < w.dim[0]; ++e)
      sum += factor<T>(w, e) * w.as<T>()[e * width + i % width] * x.as<T>()[i];
    y.as<T>()[i] = sum;
  }
}

template <class T>
void mixture_grad(const KernelArgs& args, const KernelContext&) {
  const Tensor &x = args.operands[0], &dy = args.operands[1], &dw = args.operands[2];
  const std::int64_t width = dw.dim[1];
  for (std::int64_t e = 0; e < dw.dim[0]; ++e)
    for (std::int64_t i = 0; i < x.elements(); ++i)
      dw.as<T>()[e * width + i % width] += factor<T>(dw, e) * x.as<T>()[i] * dy.as<T>()[i];
}

// ---------------------------------------------------------------- maxima

struct LargestOf {
  static constexpr const char* kind = "largest_of";
  static constexpr const char* help = "the largest magnitude of each row";
  static constexpr OperandDef operands[] = {{"x"}, {"m", Access::write}};
  static void rule(OpShape& s) {
    s.output(1, s.operand[0].dtype, s.operand[0].dims, s.operand[0].rank - 1);
    s.max(0, s.operand[0].rank - 1, s.operand[0].rank);
  }
};

template <class T>
void largest_of(const KernelArgs& args, const KernelContext&) {
  const Tensor &x = args.operands[0], &m = args.operands[1];
  const std::int64_t width = x.inner(1);
  for (std::int64_t row = 0; row < m.elements(); ++row) {
    m.as<T>()[row] = 0;
    for (std::int64_t c = 0; c < width; ++c)
      m.as<T>()[row] = std::max(m.as<T>()[row], std::abs(x.as<T>()[row * width + c]));
  }
}

struct Shrink {
  static constexpr const char* kind = "shrink";
  static constexpr const char* help = "y = x / (1 + m) by row, where m counts as a constant";
  static constexpr OperandDef operands[] = {{"x"}, {"m"}, {"y", Access::write}};
  static void rule(OpShape& s) {
    s.like(2, 0);
    s.pass_partial({0});
  }
  static void gradient(const Gradient& g) { g.input(0, "shrink", {g.arrived(2), g.operand(1)}); }
};

template <class T>
void shrink(const KernelArgs& args, const KernelContext&) {
  const Tensor &x = args.operands[0], &m = args.operands[1], &y = args.operands[2];
  for (std::int64_t i = 0; i < x.elements(); ++i)
    y.as<T>()[i] = x.as<T>()[i] / (1 + m.as<T>()[i / x.inner(1)]);
}

struct FoldLargest {
  static constexpr const char* kind = "fold_largest";
  static constexpr const char* help = "the largest magnitude of a step, of all that it was told";
  static constexpr OperandDef operands[] = {{"x"}, {"largest", Access::update}};
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) {
    s.max(0, 0, s.operand[0].rank);
    s.pass_maximum({1});
  }
  static void gradient(const Gradient&) {}
};

template <class T>
void fold_largest(const KernelArgs& args, const KernelContext&) {
  const Tensor& x = args.operands[0];
  auto* const largest = args.operands[1].as<double>();
  for (std::int64_t i = 0; i < x.elements(); ++i)
    *largest = std::max(*largest, static_cast<double>(std::abs(x.as<T>()[i])));
}

// ---------------------------------------------------------------- numbers

struct AddOnce {
  static constexpr const char* kind = "add_once";
  static constexpr const char* help = "total += x, which all ranks know alike";
  static constexpr OperandDef operands[] = {{"x"}, {"total", Access::update}};
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape&) {}
};

void add_once(const KernelArgs& args, const KernelContext&) {
  *args.operands[1].as<double>() += *args.operands[0].as<const double>();
}

struct Pick {
  static constexpr const char* kind = "pick";
  static constexpr const char* help = "the number of the largest element of each row";
  static constexpr OperandDef operands[] = {{"x"}, {"index", Access::write}};
  static void rule(OpShape& s) {
    const OperandShape x = s.operand[0];
    s.output(1, DType::i32, x.dims, x.rank - 1);
    s.whole(0, x.rank - 1, x.rank);
  }
};

template <class T>
void pick(const KernelArgs& args, const KernelContext&) {
  const Tensor &x = args.operands[0], &index = args.operands[1];
  const std::int64_t width = x.inner(1);
  for (std::int64_t row = 0; row < index.elements(); ++row) {
    const T* const begin = x.as<T>() + row * width;
    index.as<std::int32_t>()[row] = static_cast<std::int32_t>(std::max_element(begin, begin + width) - begin);
  }
}

struct ScaleByIndex {
  static constexpr const char* kind = "scale_by_index";
  static constexpr const char* help = "y = x / (1 + index) by row";
  static constexpr OperandDef operands[] = {{"x"}, {"index"}, {"y", Access::write}};
  static void rule(OpShape& s) {
    s.like(2, 0);
    s.pass_partial({0});
  }
  static void gradient(const Gradient& g) { g.input(0, "scale_by_index", {g.arrived(2), g.operand(1)}); }
};

template <class T>
void scale_by_index(const KernelArgs& args, const KernelContext&) {
  const Tensor &x = args.operands[0], &index = args.operands[1], &y = args.operands[2];
  for (std::int64_t i = 0; i < x.elements(); ++i)
    y.as<T>()[i] = x.as<T>()[i] / static_cast<T>(1 + index.as<const std::int32_t>()[i / x.inner(1)]);
}

template <Kernel in_f64, Kernel in_f32>
DeviceKernel on_cpu(const char* op) {
  return {"cpu", {op, [](const OpShape& s) -> Kernel {
                    const DType type = s.operand[0].dtype;
                    return type == DType::f64 ? in_f64 : type == DType::f32 ? in_f32 : nullptr;
                  }}};
}

class Plugin final : public OpPlugin {
 public:
  explicit Plugin(const Options&) {}
  std::vector<OpDef> ops() override {
    return {op_def<Mixture>(),     op_def<MixtureGrad>(), op_def<LargestOf>(), op_def<Shrink>(),
            op_def<FoldLargest>(), op_def<AddOnce>(),     op_def<Pick>(),      op_def<ScaleByIndex>()};
  }
  std::vector<DeviceKernel> kernels() override {
    return {on_cpu<mixture<double>, mixture<float>>("mixture"),
            on_cpu<mixture_grad<double>, mixture_grad<float>>("mixture_grad"),
            on_cpu<largest_of<double>, largest_of<float>>("largest_of"),
            on_cpu<shrink<double>, shrink<float>>("shrink"),
            on_cpu<fold_largest<double>, fold_largest<float>>("fold_largest"),
            {"cpu", {"add_once", [](const OpShape&) -> Kernel { return add_once; }}},
            on_cpu<pick<double>, pick<float>>("pick"),
            on_cpu<scale_by_index<double>, scale_by_index<float>>("scale_by_index")};
  }
  std::vector<OpExample> examples() override {
    const Dim batch{"batch", 2}, seq{"seq", 4}, hidden{"hidden", 6}, experts{"experts", 4};
    return {OpExample("mixture").values(0, {batch, seq, hidden}).values(1, {experts, hidden}),
            OpExample("largest_of").values(0, {batch, seq, hidden}),
            OpExample("pick").values(0, {batch, seq, hidden}),
            OpExample("scale_by_index").values(0, {batch, seq, hidden}).numbers(1, {batch, seq}, 0, 5)};
  }
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(op, prun::Plugin, "mixture", "0.1.0", "Experts, maxima and numbers of elements", "", "");
