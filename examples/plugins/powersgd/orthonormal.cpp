// The other ops of PowerSGD: columns at right angles, and what is kept for the next step. Kernels for the
// CPU.
#include <cmath>

#include "prun/plugin.hpp"

namespace {

using namespace prun;

struct Gram {
  static constexpr const char* kind = "gram";
  static constexpr const char* help = "gram = p^T p";
  static constexpr OperandDef operands[] = {{"p"}, {"gram", Access::write}};
  static void rule(OpShape& s) {
    const OperandShape p = s.operand[0];
    const Dim dims[] = {p.dims[p.rank - 1], {"other_sketch", p.dims[p.rank - 1].extent}};
    s.output(1, p.dtype, dims, 2);
    s.sum(0, 0, p.rank - 1);
  }
};

struct Orthonormal {
  static constexpr const char* kind = "orthonormal";
  static constexpr const char* help =
      "columns of p at right angles, of length 1, by Cholesky of their gram matrix";
  static constexpr OperandDef operands[] = {{"p"}, {"gram"}, {"basis", Access::write}};
  static void rule(OpShape& s) {
    s.like(2, 0);
    s.whole(0, s.operand[0].rank - 1, s.operand[0].rank);
  }
};

// A step that has gone wrong is not kept, and must not spoil what the next one begins with.
struct KeepFinite {
  static constexpr const char* kind = "keep_finite";
  static constexpr const char* help = "y = a - b, or a without b, where that is finite; elsewhere y stays";
  static constexpr Effect effect = Effect::update;
  static constexpr OperandDef operands[] = {{"a"}, {"b", Access::read, true}, {"y", Access::update}};
  static void rule(OpShape& s) { s.pass_partial({0, 1}); }
};

template <class T>
void gram(const KernelArgs& args, const KernelContext&) {
  const Tensor &p = args.operands[0], &g = args.operands[1];
  const std::int64_t rank = g.dim[0];
  for (std::int64_t k = 0; k < rank * rank; ++k) g.as<T>()[k] = 0;
  for (std::int64_t i = 0; i < p.elements(); i += rank)
    for (std::int64_t k = 0; k < rank * rank; ++k)
      g.as<T>()[k] += p.as<T>()[i + k / rank] * p.as<T>()[i + k % rank];
}

// Solves basis L^T = p, with gram = L L^T. A column that depends on those before it becomes zeros.
template <class T>
void orthonormal(const KernelArgs& args, const KernelContext&) {
  const Tensor &p = args.operands[0], &g = args.operands[1], &basis = args.operands[2];
  const std::int64_t rank = g.dim[0];
  T* const l = static_cast<T*>(args.workspace);
  for (std::int64_t k = 0; k < rank; ++k)
    for (std::int64_t i = k; i < rank; ++i) {
      T sum = g.as<T>()[i * rank + k];
      for (std::int64_t j = 0; j < k; ++j) sum -= l[i * rank + j] * l[k * rank + j];
      const T pivot = k == i ? sum : l[k * rank + k];
      const bool depends = k == i ? sum <= g.as<T>()[k * rank + k] * static_cast<T>(1e-6) : pivot == 0;
      l[i * rank + k] = depends ? 0 : k == i ? std::sqrt(sum) : sum / pivot;
    }
  for (std::int64_t row = 0; row < p.elements(); row += rank)
    for (std::int64_t k = 0; k < rank; ++k) {
      T sum = p.as<T>()[row + k];
      for (std::int64_t j = 0; j < k; ++j) sum -= basis.as<T>()[row + j] * l[k * rank + j];
      basis.as<T>()[row + k] = l[k * rank + k] == 0 ? 0 : sum / l[k * rank + k];
    }
}

template <class T>
void keep_finite(const KernelArgs& args, const KernelContext&) {
  const Tensor &a = args.operands[0], &b = args.operands[1], &y = args.operands[2];
  for (std::int64_t i = 0; i < y.elements(); ++i)
    if (const T x = a.as<T>()[i] - (b.data ? b.as<T>()[i] : 0); std::isfinite(x)) y.as<T>()[i] = x;
}

template <Kernel in_double, Kernel in_float>
Kernel choose(const OpShape& s) {
  const DType type = s.operand[0].dtype;
  return type == DType::f64 ? in_double : type == DType::f32 ? in_float : nullptr;
}

std::int64_t one_triangle(const OpShape& s, std::int32_t) { return s.operand[1].bytes(); }

class OrthonormalOps final : public OpPlugin {
 public:
  explicit OrthonormalOps(const Options&) {}
  std::vector<OpDef> ops() override { return {op_def<Gram>(), op_def<Orthonormal>(), op_def<KeepFinite>()}; }
  std::vector<DeviceKernel> kernels() override {
    return {{"cpu", {"gram", choose<gram<double>, gram<float>>}},
            {"cpu", {"orthonormal", choose<orthonormal<double>, orthonormal<float>>, one_triangle}},
            {"cpu", {"keep_finite", choose<keep_finite<double>, keep_finite<float>>}}};
  }
  std::vector<OpExample> examples() override {
    const Dim rows{"rows", 8}, columns{"columns", 6}, sketch{"sketch", 2};
    return {OpExample("gram").values(0, {rows, sketch}),
            OpExample("keep_finite").values(0, {rows, columns}).values(1, {rows, columns})};
  }
};

}  // namespace

PRUN_PLUGIN(op, OrthonormalOps, "orthonormal", "1.0.0", "Columns at right angles", "", "");
