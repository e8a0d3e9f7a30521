// Launches linear and its gradients, as products of matrices.
#include "cuda/activation.hpp"
#include "fp8_work.hpp"

namespace prun::cuda {
namespace {

constexpr auto bind_linear = []<class T>(const KernelArgs& args, Libraries& libraries,
                                         Stream stream) -> Work {
  LinearShape shape = shape_between(args, 0, 3);
  const T *x = data<const T>(args, 0), *weight = data<const T>(args, 1), *bias = data<const T>(args, 2);
  T* y = data<T>(args, 3);
  shape.bias = bias != nullptr;
  shape.alignment = alignment_of({x, weight, bias, y});
  const GemmOperands operands = linear_operands<T>(x, weight, bias, nullptr, y, args.workspace);
  if constexpr (!std::is_same_v<T, double>)
    if (multiplies_in_fp8(args))
      return [=, factors = Fp8Forward(shape, args.workspace),
              product = linear_in_fp8<T>(shape, kept_weight(args, shape, true), operands, libraries, stream)](
                 Stream on) {
        rows_to_fp8(x, shape.rows, shape.in, factors.x, on);
        product(on);
      };
  return product_work(linear_product<T>(shape), operands, libraries, stream);
};

constexpr auto bind_input_grad = []<class T>(const KernelArgs& args, Libraries& libraries,
                                             Stream stream) -> Work {
  LinearShape shape = shape_between(args, 2, 0);
  const T *dy = data<const T>(args, 0), *weight = data<const T>(args, 1);
  T* dx = data<T>(args, 2);
  shape.alignment = alignment_of({dy, weight, dx});
  const GemmOperands operands = linear_input_grad_operands<T>(dy, weight, dx, args.workspace);
  if constexpr (!std::is_same_v<T, double>)
    if (multiplies_in_fp8(args))
      return [=, factors = Fp8Backward(shape, args.workspace),
              product = input_grad_in_fp8<T>(shape, kept_weight(args, shape, false), operands, libraries,
                                             stream)](Stream on) {
        rows_to_fp8(dy, shape.rows, shape.out, factors.dy, on);
        product(on);
      };
  return product_work(linear_input_grad_product<T>(shape), operands, libraries, stream);
};

constexpr auto bind_gelu_grad = []<class T>(const KernelArgs& args, Libraries& libraries,
                                            Stream stream) -> Work {
  LinearShape shape = linear_shape(args, 1, 2);
  const T *dy = data<const T>(args, 0), *weight = data<const T>(args, 1), *x = data<const T>(args, 2);
  T* dx = data<T>(args, 3);
  shape.alignment = alignment_of({dy, weight, x, dx});
  Product product = linear_input_grad_product<T>(shape);
  GemmOperands operands = linear_input_grad_operands<T>(dy, weight, dx, args.workspace);
  const std::int64_t n = args.operands[2].elements();
  const auto apart = [&, product, operands]() -> Work {
    return [alone = product_work(product, operands, libraries, stream), x, dx, n](Stream on) {
      alone(on);
      gelu_grad(dx, x, dx, n, on);
    };
  };
  if constexpr (!std::is_same_v<T, bf16>) return apart();
  product.epilogue = Epilogue::gelu_grad;
  operands.aux = const_cast<T*>(x);
  return together_or_apart(product, operands, apart, libraries, stream);
};

constexpr auto bind_weight_grad = []<class T, class S>(const KernelArgs& args, Libraries& libraries,
                                                       Stream stream) -> Work {
  LinearShape shape = weight_grad_shape(args);
  const T *x = data<const T>(args, 0), *dy = data<const T>(args, 1);
  S* dweight = data<S>(args, 2);
  shape.alignment = alignment_of({x, dy, dweight});
  const GemmOperands operands = linear_weight_grad_operands(x, dy, dweight, args.begins(2), args.workspace);
  if constexpr (!std::is_same_v<T, double>)
    if (multiplies_in_fp8(args))
      return [=, factors = Fp8Backward(shape, args.workspace),
              product = weight_grad_in_fp8<T, S>(shape, kept_codes(args, shape), operands, libraries,
                                                 stream)](Stream on) {
        columns_to_fp8(dy, shape.rows, shape.out, factors.dy_columns, on);
        product(on);
      };
  return product_work(linear_weight_grad_product<T, S>(shape), operands, libraries, stream);
};

std::int64_t workspace(const OpShape&, std::int32_t) { return gemm_workspace; }

// Returns the workspace for a value [.., in] and one [.., out].
template <class Factors, int value, int other>
std::int64_t workspace_of(const OpShape& s, std::int32_t) {
  if (s.attrs[1].i == 0) return gemm_workspace;
  const OperandShape& x = s.operand[value];
  LinearShape shape{.rows = 0, .in = 1, .out = 0};
  for (int d = x.rank - static_cast<int>(s.attrs[0].i); d < x.rank; ++d) shape.in *= x.dims[d].extent;
  shape.rows = x.elements() / shape.in;
  shape.out = s.operand[other].elements() / shape.rows;
  return Factors(shape, nullptr).bytes;
}

// Returns the workspace for a weight's gradient, whose x may be codes.
std::int64_t weight_grad_workspace(const OpShape& s, std::int32_t) {
  if (s.attrs[1].i == 0) return gemm_workspace;
  const OperandShape& w = s.operand[2];
  LinearShape shape{.rows = 0, .in = 1, .out = 0};
  for (int d = w.rank - static_cast<int>(s.attrs[0].i); d < w.rank; ++d) shape.in *= w.dims[d].extent;
  shape.out = w.elements() / shape.in;
  shape.rows = s.operand[1].elements() / shape.out;
  return Fp8Backward(shape, nullptr).bytes;
}

bool can_multiply(const OpShape& s) { return s.attrs[1].i == 0 || s.operand[0].dtype != DType::f64; }

// Says whether the weight has the type of values, or is codes.
bool weight_fits(const OpShape& s) { return s.attrs[1].i == 2 || same_type(s, {0, 1}); }

Kernel of_values(DType type) {
  return by_value(type, []<class T>() -> Kernel { return runs_when_bound; });
}

Kernel select_linear(const OpShape& s) {
  return same_type(s, {0, 2, 3}) && weight_fits(s) && can_multiply(s) ? of_values(s.operand[0].dtype)
                                                                      : nullptr;
}

Kernel select_input_grad(const OpShape& s) {
  return same_type(s, {0, 2}) && weight_fits(s) && can_multiply(s) ? of_values(s.operand[0].dtype) : nullptr;
}

Kernel select_gelu_grad(const OpShape& s) {
  return same_type(s, {0, 1, 2, 3}) ? of_values(s.operand[0].dtype) : nullptr;
}

Kernel select_weight_grad(const OpShape& s) {
  const bool fits =
      s.attrs[1].i == 2 ? s.operand[1].dtype != DType::f64 : same_type(s, {0, 1}) && can_multiply(s);
  if (!fits) return nullptr;
  return by_sum(s, 1, {2}, []<class T, class S>() -> Kernel { return runs_when_bound; });
}

// Binds by the type of dy: x may be codes.
Work bind_weight_grads(Launches launches, Libraries& libraries, Stream stream) {
  const KernelArgs& args = launches.front().args;
  return by_sum(types_of(args), 1, {2}, [&]<class T, class S>() -> Work {
    return bind_weight_grad.template operator()<T, S>(args, libraries, stream);
  });
}

}  // namespace

std::vector<DeviceOp> linear_ops(const OpChoices&) {
  constexpr auto of_linear = workspace_of<Fp8Forward, 0, 3>, of_input_grad = workspace_of<Fp8Backward, 2, 0>;
  return {{{"linear", select_linear, of_linear}, bind_typed<bind_linear>},
          {{"linear_input_grad", select_input_grad, of_input_grad}, bind_typed<bind_input_grad>},
          {{"linear_gelu_grad", select_gelu_grad, workspace}, bind_typed<bind_gelu_grad>},
          {{"linear_weight_grad", select_weight_grad, weight_grad_workspace, 1u << 2}, bind_weight_grads}};
}

}  // namespace prun::cuda
