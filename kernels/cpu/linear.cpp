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
  Factors(const KernelArgs& args, const KernelContext& context)
      : in_fp8_(multiplies_in_fp8(args, 1)), scratch_(args.workspace), workers_(*context.workers) {}

  template <class T>
  Matrix<const T> operator()(const Tensor& tensor, int columns, Fp8Blocks blocks) {
    const Matrix<const T> given = flatten<const T>(tensor, columns);
    if (!in_fp8_) return given;
    T* const rounded = scratch_.take<T>(given.rows * given.cols);
    round_to_fp8(blocks, given.data, rounded, given.rows, given.cols, workers_);
    return row_major<const T>(rounded, given.rows, given.cols);
  }
  // Takes the factor of a value whose squares have become codes.
  template <class T>
  Matrix<const T> of_codes(const Tensor& codes, const Fp8Squares& squares) {
    T* const numbers = scratch_.take<T>(squares.rows * squares.columns);
    decode_squares(squares, codes, numbers, workers_);
    return row_major<const T>(numbers, squares.rows, squares.columns);
  }
  void* workspace() { return scratch_.take<char>(0); }

 private:
  const bool in_fp8_;
  Scratch scratch_;
  const Workers& workers_;
};

template <class T>
void linear(const KernelArgs& args, const KernelContext& context) {
  const Tensor &weight = args.operands[1], &bias = args.operands[2], &y = args.operands[3];
  const int in = static_cast<int>(args.attrs[0].i), out = weight.rank - in;
  Factors factors(args, context);
  const Matrix<const T> x = factors.operator()<T>(args.operands[0], in, Fp8Blocks::rows),
                        w = factors.operator()<T>(weight, in, Fp8Blocks::squares);
  gemm<T, T, T>(*context.workers, x, w.transposed(), flatten<T>(y, out), false, bias.as<const T>(),
                factors.workspace());
}

template <class T>
void linear_input_grad(const KernelArgs& args, const KernelContext& context) {
  const Tensor& weight = args.operands[1];
  const int in = static_cast<int>(args.attrs[0].i), out = weight.rank - in;
  Factors factors(args, context);
  const Matrix<const T> dy = factors.operator()<T>(args.operands[0], out, Fp8Blocks::rows),
                        w = factors.operator()<T>(weight, in, Fp8Blocks::squares);
  gemm<T, T, T>(*context.workers, dy, w, flatten<T>(args.operands[2], in), false, nullptr,
                factors.workspace());
}

template <class T>
void linear_gelu_grad(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const Tensor &dy = args.operands[0], &weight = args.operands[1], &x = args.operands[2],
               &dx = args.operands[3];
  const int in = static_cast<int>(args.attrs[0].i), out = weight.rank - in;
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
  const Tensor& dweight = args.operands[2];
  const int in = static_cast<int>(args.attrs[0].i), out = dweight.rank - in;
  Factors factors(args, context);
  const Matrix<const T> x = args.attrs[1].i == 2
                                ? factors.of_codes<T>(args.operands[0],
                                                      {args.operands[1].outer(out), dweight.inner(in)})
                                : factors.operator()<T>(args.operands[0], in, Fp8Blocks::squares),
                        dy = factors.operator()<T>(args.operands[1], out, Fp8Blocks::columns);
  gemm<T, T, Sum>(*context.workers, dy.transposed(), x, flatten<Sum>(dweight, in), !args.begins(2), nullptr,
                  factors.workspace());
}

Kernel select_linear(const OpShape& shape) {
  if (!same_type(shape, {0, 1, 2, 3})) return nullptr;
  return choose_value(shape.operand[0].dtype, []<class T>() -> Kernel { return linear<T>; });
}

Kernel select_input_grad(const OpShape& shape) {
  if (!same_type(shape, {0, 1, 2})) return nullptr;
  return choose_value(shape.operand[0].dtype, []<class T>() -> Kernel { return linear_input_grad<T>; });
}

Kernel select_gelu_grad(const OpShape& shape) {
  if (!same_type(shape, {0, 1, 2, 3})) return nullptr;
  return choose_value(shape.operand[0].dtype, []<class T>() -> Kernel { return linear_gelu_grad<T>; });
}

bool has_codes(const OpShape& shape) { return shape.attrs[1].i == 2; }

Kernel select_weight_grad(const OpShape& shape) {
  if (!has_codes(shape) && !same_type(shape, {0, 1})) return nullptr;
  return choose_product_sum(shape.operand[1].dtype, shape.operand[2].dtype,
                            []<class T, class Sum>() -> Kernel { return linear_weight_grad<T, Sum>; });
}

// Holds the products' extents, from the weight's dimensions and those of a value [..., in].
struct Extents {
  std::int64_t rows = 1, in = 1, out = 1, compute_size;
};

Extents extents(const OpShape& shape, int weight_operand, int value_operand) {
  const OperandShape &weight = shape.operand[weight_operand], &value = shape.operand[value_operand];
  const int in = static_cast<int>(shape.attrs[0].i);
  Extents e{.compute_size = value.dtype == DType::f64 ? 8 : 4};
  for (int d = 0; d < value.rank - in; ++d) e.rows *= value.dims[d].extent;
  for (int d = 0; d < weight.rank; ++d) (d < weight.rank - in ? e.out : e.in) *= weight.dims[d].extent;
  return e;
}

// Returns the shape of x [rows, in..] of a weight's gradient whose operand is codes.
OperandShape numbers_of_codes(const OpShape& shape) {
  const OperandShape &dy = shape.operand[1], &weight = shape.operand[2];
  const int in = static_cast<int>(shape.attrs[0].i), out = weight.rank - in, lead = dy.rank - out;
  OperandShape x = dy;
  x.rank = lead + in;
  for (int i = 0; i < in; ++i) x.dims[lead + i] = weight.dims[out + i];
  return x;
}

// Returns the workspace of two factors that Factors has rounded.
std::int64_t factors_workspace(const OpShape& shape, int one, int other) {
  if (shape.attrs[1].i == 0) return 0;
  Scratch scratch;
  for (const int i : {one, other}) scratch.take<char>(shape.operand[i].bytes());
  return scratch.bytes();
}

std::int64_t linear_workspace(const OpShape& shape, std::int32_t threads) {
  const Extents e = extents(shape, 1, 0);
  return factors_workspace(shape, 0, 1) + gemm_workspace(threads, e.rows, e.out, e.in, e.compute_size);
}

std::int64_t gelu_grad_workspace(const OpShape& shape, std::int32_t threads) {
  const Extents e = extents(shape, 1, 2);
  return gemm_workspace(threads, e.rows, e.in, e.out, e.compute_size);
}

std::int64_t input_grad_workspace(const OpShape& shape, std::int32_t threads) {
  return factors_workspace(shape, 0, 1) + gelu_grad_workspace(shape, threads);
}

std::int64_t weight_grad_workspace(const OpShape& shape, std::int32_t threads) {
  OpShape numbers = shape;
  if (has_codes(shape)) numbers.operand[0] = numbers_of_codes(shape);
  const Extents e = extents(numbers, 2, 0);
  return factors_workspace(numbers, 0, 1) + gemm_workspace(threads, e.out, e.in, e.rows, e.compute_size);
}

}  // namespace

std::vector<KernelDef> linear_kernels() {
  return {{"linear", select_linear, linear_workspace},
          {"linear_input_grad", select_input_grad, input_grad_workspace},
          {"linear_gelu_grad", select_gelu_grad, gelu_grad_workspace},
          {"linear_weight_grad", select_weight_grad, weight_grad_workspace, 1u << 2}};
}

}  // namespace prun::cpu::PRUN_ISA
