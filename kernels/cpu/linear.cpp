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

bool has_codes(const KernelArgs& args) { return args.attrs[1].i == 2; }

template <class T>
void linear(const KernelArgs& args, const KernelContext& context) {
  const Tensor &x = args.operands[0], &weight = args.operands[1], &bias = args.operands[2],
               &y = args.operands[3];
  const int in = static_cast<int>(args.attrs[0].i), out = y.rank - (x.rank - in);
  Factors factors(args, context);
  const Matrix<const T> left = factors.operator()<T>(x, in, Fp8Blocks::rows),
                        w = has_codes(args) ? factors.of_codes<T>(weight, y.inner(out), x.inner(in), true)
                                            : factors.operator()<T>(weight, in, Fp8Blocks::squares);
  gemm<T, T, T>(*context.workers, left, w.transposed(), flatten<T>(y, out), false, bias.as<const T>(),
                factors.workspace());
}

template <class T>
void linear_input_grad(const KernelArgs& args, const KernelContext& context) {
  const Tensor &given = args.operands[0], &weight = args.operands[1], &dx = args.operands[2];
  const int in = static_cast<int>(args.attrs[0].i), out = given.rank - (dx.rank - in);
  Factors factors(args, context);
  const Matrix<const T> dy = factors.operator()<T>(given, out, Fp8Blocks::rows),
                        w = has_codes(args)
                                ? factors.of_codes<T>(weight, given.inner(out), dx.inner(in), false)
                                : factors.operator()<T>(weight, in, Fp8Blocks::squares);
  gemm<T, T, T>(*context.workers, dy, w, flatten<T>(dx, in), false, nullptr, factors.workspace());
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
  const Matrix<const T> x = has_codes(args)
                                ? factors.of_codes<T>(args.operands[0], args.operands[1].outer(out),
                                                      dweight.inner(in), false)
                                : factors.operator()<T>(args.operands[0], in, Fp8Blocks::squares),
                        dy = factors.operator()<T>(args.operands[1], out, Fp8Blocks::columns);
  gemm<T, T, Sum>(*context.workers, dy.transposed(), x, flatten<Sum>(dweight, in), !args.begins(2), nullptr,
                  factors.workspace());
}

bool has_codes(const OpShape& shape) { return shape.attrs[1].i == 2; }

Kernel select_linear(const OpShape& shape) {
  if (!same_type(shape, {0, 2, 3}) || !(has_codes(shape) || same_type(shape, {0, 1}))) return nullptr;
  return choose_value(shape.operand[0].dtype, []<class T>() -> Kernel { return linear<T>; });
}

Kernel select_input_grad(const OpShape& shape) {
  if (!same_type(shape, {0, 2}) || !(has_codes(shape) || same_type(shape, {0, 1}))) return nullptr;
  return choose_value(shape.operand[0].dtype, []<class T>() -> Kernel { return linear_input_grad<T>; });
}

Kernel select_gelu_grad(const OpShape& shape) {
  if (!same_type(shape, {0, 1, 2, 3})) return nullptr;
  return choose_value(shape.operand[0].dtype, []<class T>() -> Kernel { return linear_gelu_grad<T>; });
}

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

// Each of these returns the op's shape with numbers in the place of codes.
OpShape linear_of_numbers(OpShape s) {
  const OperandShape &x = s.operand[0], &y = s.operand[3];
  const int lead = x.rank - static_cast<int>(s.attrs[0].i);
  if (has_codes(s)) s.operand[1] = matrix_of(y, lead, y.rank, x, lead, x.rank);
  return s;
}

OpShape input_grad_of_numbers(OpShape s) {
  const OperandShape &dy = s.operand[0], &dx = s.operand[2];
  const int lead = dx.rank - static_cast<int>(s.attrs[0].i);
  if (has_codes(s)) s.operand[1] = matrix_of(dy, lead, dy.rank, dx, lead, dx.rank);
  return s;
}

OpShape weight_grad_of_numbers(OpShape s) {
  const OperandShape &dy = s.operand[1], &weight = s.operand[2];
  const int out = weight.rank - static_cast<int>(s.attrs[0].i);
  if (has_codes(s)) s.operand[0] = matrix_of(dy, 0, dy.rank - out, weight, out, weight.rank);
  return s;
}

// Returns the workspace of two factors that Factors has rounded.
std::int64_t factors_workspace(const OpShape& shape, int one, int other) {
  if (shape.attrs[1].i == 0) return 0;
  Scratch scratch;
  for (const int i : {one, other}) scratch.take<char>(shape.operand[i].bytes());
  return scratch.bytes();
}

std::int64_t linear_workspace(const OpShape& shape, std::int32_t threads) {
  const OpShape numbers = linear_of_numbers(shape);
  const Extents e = extents(numbers, 1, 0);
  return factors_workspace(numbers, 0, 1) + gemm_workspace(threads, e.rows, e.out, e.in, e.compute_size);
}

std::int64_t gelu_grad_workspace(const OpShape& shape, std::int32_t threads) {
  const Extents e = extents(shape, 1, 2);
  return gemm_workspace(threads, e.rows, e.in, e.out, e.compute_size);
}

std::int64_t input_grad_workspace(const OpShape& shape, std::int32_t threads) {
  const OpShape numbers = input_grad_of_numbers(shape);
  return factors_workspace(numbers, 0, 1) + gelu_grad_workspace(numbers, threads);
}

std::int64_t weight_grad_workspace(const OpShape& shape, std::int32_t threads) {
  const OpShape numbers = weight_grad_of_numbers(shape);
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
