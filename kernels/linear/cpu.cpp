// Implements linear and its gradients: each is one matrix multiply, on operands flattened to matrices, which
// the attribute fp8 has rounded before.
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/fp8_squares.hpp"
#include "cpu/gelu.hpp"
#include "cpu/gemm.hpp"
#include "cpu/lanes.hpp"
#include "cpu/scratch.hpp"
#include "cpu/values.hpp"
#include "prun/op.hpp"
#include "prun/ops/linear.hpp"

namespace prun::cpu::PRUN_ISA {

std::vector<KernelDef> linear_kernels();

namespace {

// Views the last `columns` dimensions of a tensor as columns, and those before as rows.
template <class T>
Matrix<T> flatten(const Tensor& tensor, int columns) {
  return row_major(tensor.as<T>(), tensor.outer(columns), tensor.inner(columns));
}

// Holds the factors of a launch: as they are or, where its attribute says so, rounded in its workspace. The
// rest of the workspace is the product's.
class Factors {
 public:
  Factors(bool in_fp8, const KernelArgs& args, const KernelContext& context)
      : in_fp8_(in_fp8), scratch_(args.workspace), workers_(*context.workers) {}

  template <class T>
  Matrix<const T> operator()(const Tensor& tensor, int columns, Fp8Blocks blocks) {
    const Matrix<const T> given = flatten<const T>(tensor, columns);
    if (!in_fp8_) return given;
    T* const rounded = scratch_.take<T>(given.rows * given.cols);
    round_to_fp8(blocks, given.data, rounded, given.rows, given.cols, workers_);
    return row_major<const T>(rounded, given.rows, given.cols);
  }
  // Takes the factor of a row-major matrix whose squares have become codes.
  template <class T>
  Matrix<const T> of_codes(const Tensor& codes, std::int64_t rows, std::int64_t columns, bool by_rows) {
    T* const numbers = scratch_.take<T>(rows * columns);
    const Fp8Squares squares = by_rows ? Fp8Squares{columns, rows} : Fp8Squares{rows, columns};
    decode_squares(squares, by_rows, codes, numbers, workers_);
    return row_major<const T>(numbers, rows, columns);
  }
  void* workspace() { return scratch_.take<char>(0); }

 private:
  const bool in_fp8_;
  Scratch scratch_;
  const Workers& workers_;
};

template <class Op>
bool in_fp8(const KernelArgs& args) {
  return multiplies_in_fp8(args, attr_of<Op>("fp8"));
}

// Says whether a weight, or x, is codes, by the attribute of ArgsOf or ShapeOf.
template <class View>
bool has_codes(const View& op) {
  return op.integer("fp8") == 2;
}

template <class T>
void linear(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Linear> op(args);
  const Tensor &x = op["x"], &weight = op["weight"], &bias = op["bias"], &y = op["y"];
  const int in = static_cast<int>(op.integer("in_dims")), out = y.rank - (x.rank - in);
  Factors factors(in_fp8<ops::Linear>(args), args, context);
  const Matrix<const T> left = factors.operator()<T>(x, in, Fp8Blocks::rows),
                        w = has_codes(op) ? factors.of_codes<T>(weight, y.inner(out), x.inner(in), true)
                                          : factors.operator()<T>(weight, in, Fp8Blocks::squares);
  gemm<T, T, T>(*context.workers, left, w.transposed(), flatten<T>(y, out), false, bias.as<const T>(),
                factors.workspace());
}

template <class T>
void linear_input_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::LinearInputGrad> op(args);
  const Tensor &given = op["dy"], &weight = op["weight"], &dx = op["dx"];
  const int in = static_cast<int>(op.integer("in_dims")), out = given.rank - (dx.rank - in);
  Factors factors(in_fp8<ops::LinearInputGrad>(args), args, context);
  const Matrix<const T> dy = factors.operator()<T>(given, out, Fp8Blocks::rows),
                        w = has_codes(op) ? factors.of_codes<T>(weight, given.inner(out), dx.inner(in), false)
                                          : factors.operator()<T>(weight, in, Fp8Blocks::squares);
  gemm<T, T, T>(*context.workers, dy, w, flatten<T>(dx, in), false, nullptr, factors.workspace());
}

template <class T>
void linear_gelu_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::LinearGeluGrad> op(args);
  using C = Compute<T>;
  const Tensor &dy = op["dy"], &weight = op["weight"], &x = op["x"], &dx = op["dx"];
  const int in = static_cast<int>(op.integer("in_dims")), out = weight.rank - in;
  gemm<T, T, T>(*context.workers, flatten<const T>(dy, out), flatten<const T>(weight, in), flatten<T>(dx, in),
                false, nullptr, args.workspace);
  const auto body = [](const T* __restrict from, T* __restrict to) {
#pragma omp simd
    for (int l = 0; l < block_lanes; ++l) store(to[l], load(to[l]) * gelu_derivative<C>(load(from[l])));
  };
  parallel_blocks(*context.workers, x.elements(), body, x.as<const T>(), dx.as<T>());
}

template <class T, class Sum>
void linear_weight_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::LinearWeightGrad> op(args);
  const Tensor& dweight = op["dweight"];
  const int in = static_cast<int>(op.integer("in_dims")), out = dweight.rank - in;
  Factors factors(in_fp8<ops::LinearWeightGrad>(args), args, context);
  const Matrix<const T> x = has_codes(op)
                                ? factors.of_codes<T>(op["x"], op["dy"].outer(out), dweight.inner(in), false)
                                : factors.operator()<T>(op["x"], in, Fp8Blocks::squares),
                        dy = factors.operator()<T>(op["dy"], out, Fp8Blocks::columns);
  gemm<T, T, Sum>(*context.workers, dy.transposed(), x, flatten<Sum>(dweight, in), !op.begins("dweight"),
                  nullptr, factors.workspace());
}

Kernel select_linear(const OpShape& shape) {
  const ShapeOf<ops::Linear> s(shape);
  if (!same_type(s, {"x", "bias", "y"}) || !(has_codes(s) || same_type(s, {"x", "weight"}))) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return linear<T>; });
}

Kernel select_input_grad(const OpShape& shape) {
  const ShapeOf<ops::LinearInputGrad> s(shape);
  if (!same_type(s, {"dy", "dx"}) || !(has_codes(s) || same_type(s, {"dy", "weight"}))) return nullptr;
  return choose_value(s["dy"].dtype, []<class T>() -> Kernel { return linear_input_grad<T>; });
}

Kernel select_gelu_grad(const OpShape& shape) {
  const ShapeOf<ops::LinearGeluGrad> s(shape);
  if (!same_type(s, {"dy", "weight", "x", "dx"})) return nullptr;
  return choose_value(s["dy"].dtype, []<class T>() -> Kernel { return linear_gelu_grad<T>; });
}

Kernel select_weight_grad(const OpShape& shape) {
  const ShapeOf<ops::LinearWeightGrad> s(shape);
  if (!has_codes(s) && !same_type(s, {"x", "dy"})) return nullptr;
  return choose_product_sum(s["dy"].dtype, s["dweight"].dtype,
                            []<class T, class Sum>() -> Kernel { return linear_weight_grad<T, Sum>; });
}

// Holds the products' extents, from the weight's dimensions and those of a value [..., in].
struct Extents {
  std::int64_t rows = 1, in = 1, out = 1, compute_size;
};

Extents extents(const OperandShape& weight, const OperandShape& value, std::int64_t in_dims) {
  const int in = static_cast<int>(in_dims);
  Extents e{.compute_size = value.dtype == DType::f64 ? 8 : 4};
  for (int d = 0; d < value.rank - in; ++d) e.rows *= value.dims[d].extent;
  for (int d = 0; d < weight.rank; ++d) (d < weight.rank - in ? e.out : e.in) *= weight.dims[d].extent;
  return e;
}

// Returns a matrix [rows.., columns..], of dimensions of two others, in the type of the first.
OperandShape matrix_of(const OperandShape& a, int a_from, int a_to, const OperandShape& b, int b_from,
                       int b_to) {
  OperandShape matrix;
  matrix.present = true;
  matrix.dtype = a.dtype;
  for (int d = a_from; d < a_to; ++d) matrix.dims[matrix.rank++] = a.dims[d];
  for (int d = b_from; d < b_to; ++d) matrix.dims[matrix.rank++] = b.dims[d];
  return matrix;
}

// Returns the workspace of two factors that Factors has rounded.
std::int64_t factors_workspace(std::int64_t fp8, const OperandShape& one, const OperandShape& other) {
  if (fp8 == 0) return 0;
  Scratch scratch;
  for (const OperandShape* factor : {&one, &other}) scratch.take<char>(factor->bytes());
  return scratch.bytes();
}

std::int64_t linear_workspace(const OpShape& shape, std::int32_t threads) {
  const ShapeOf<ops::Linear> s(shape);
  const OperandShape &x = s["x"], &y = s["y"];
  const int lead = x.rank - static_cast<int>(s.integer("in_dims"));
  // A weight that comes in codes has the shape of its numbers.
  const OperandShape weight = has_codes(s) ? matrix_of(y, lead, y.rank, x, lead, x.rank) : s["weight"];
  const Extents e = extents(weight, x, s.integer("in_dims"));
  return factors_workspace(s.integer("fp8"), x, weight) +
         gemm_workspace(threads, e.rows, e.out, e.in, e.compute_size);
}

std::int64_t gelu_grad_workspace(const OpShape& shape, std::int32_t threads) {
  const ShapeOf<ops::LinearGeluGrad> s(shape);
  const Extents e = extents(s["weight"], s["x"], s.integer("in_dims"));
  return gemm_workspace(threads, e.rows, e.in, e.out, e.compute_size);
}

std::int64_t input_grad_workspace(const OpShape& shape, std::int32_t threads) {
  const ShapeOf<ops::LinearInputGrad> s(shape);
  const OperandShape &dy = s["dy"], &dx = s["dx"];
  const int lead = dx.rank - static_cast<int>(s.integer("in_dims"));
  const OperandShape weight = has_codes(s) ? matrix_of(dy, lead, dy.rank, dx, lead, dx.rank) : s["weight"];
  const Extents e = extents(weight, dx, s.integer("in_dims"));
  return factors_workspace(s.integer("fp8"), dy, weight) +
         gemm_workspace(threads, e.rows, e.in, e.out, e.compute_size);
}

std::int64_t weight_grad_workspace(const OpShape& shape, std::int32_t threads) {
  const ShapeOf<ops::LinearWeightGrad> s(shape);
  const OperandShape &dy = s["dy"], &weight = s["dweight"];
  const int out = weight.rank - static_cast<int>(s.integer("in_dims"));
  const OperandShape x = has_codes(s) ? matrix_of(dy, 0, dy.rank - out, weight, out, weight.rank) : s["x"];
  const Extents e = extents(weight, x, s.integer("in_dims"));
  return factors_workspace(s.integer("fp8"), x, dy) +
         gemm_workspace(threads, e.out, e.in, e.rows, e.compute_size);
}

}  // namespace

std::vector<KernelDef> linear_kernels() {
  return {{ops::Linear::kind, select_linear, linear_workspace},
          {ops::LinearInputGrad::kind, select_input_grad, input_grad_workspace},
          {ops::LinearGeluGrad::kind, select_gelu_grad, gelu_grad_workspace},
          {ops::LinearWeightGrad::kind, select_weight_grad, weight_grad_workspace,
           bits_of<ops::LinearWeightGrad>("dweight")}};
}

}  // namespace prun::cpu::PRUN_ISA
