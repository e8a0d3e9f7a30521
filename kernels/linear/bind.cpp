// Launches linear and its gradients, as products of matrices.
#include "activation/cuda.hpp"
#include "fp8_work.hpp"
#include "prun/ops/linear.hpp"

namespace prun::cuda {
namespace {

constexpr auto bind_linear = []<class T>(const KernelArgs& args, Libraries& libraries,
                                         Stream stream) -> Work {
  const ArgsOf<ops::Linear> op(args);
  LinearShape shape = shape_between(op["x"], op["y"], op.integer("in_dims"));
  const T *x = op["x"].as<const T>(), *weight = op["weight"].as<const T>(), *bias = op["bias"].as<const T>();
  T* y = op["y"].as<T>();
  shape.bias = bias != nullptr;
  shape.alignment = alignment_of({x, weight, bias, y});
  const GemmOperands operands = linear_operands<T>(x, weight, bias, nullptr, y, args.workspace);
  if constexpr (!std::is_same_v<T, double>)
    if (multiplies_in_fp8(args))
      return [=, factors = Fp8Forward(shape, args.workspace),
              product = linear_in_fp8<T>(shape, kept_weight(op, shape, true), operands, libraries, stream)](
                 Stream on) {
        rows_to_fp8(x, shape.rows, shape.in, factors.x, on);
        product(on);
      };
  return product_work(linear_product<T>(shape), operands, libraries, stream);
};

constexpr auto bind_input_grad = []<class T>(const KernelArgs& args, Libraries& libraries,
                                             Stream stream) -> Work {
  const ArgsOf<ops::LinearInputGrad> op(args);
  LinearShape shape = shape_between(op["dx"], op["dy"], op.integer("in_dims"));
  const T *dy = op["dy"].as<const T>(), *weight = op["weight"].as<const T>();
  T* dx = op["dx"].as<T>();
  shape.alignment = alignment_of({dy, weight, dx});
  const GemmOperands operands = linear_input_grad_operands<T>(dy, weight, dx, args.workspace);
  if constexpr (!std::is_same_v<T, double>)
    if (multiplies_in_fp8(args))
      return [=, factors = Fp8Backward(shape, args.workspace),
              product = input_grad_in_fp8<T>(shape, kept_weight(op, shape, false), operands, libraries,
                                             stream)](Stream on) {
        rows_to_fp8(dy, shape.rows, shape.out, factors.dy, on);
        product(on);
      };
  return product_work(linear_input_grad_product<T>(shape), operands, libraries, stream);
};

constexpr auto bind_gelu_grad = []<class T>(const KernelArgs& args, Libraries& libraries,
                                            Stream stream) -> Work {
  const ArgsOf<ops::LinearGeluGrad> op(args);
  LinearShape shape = linear_shape(op["weight"], op["x"], op.integer("in_dims"));
  const T *dy = op["dy"].as<const T>(), *weight = op["weight"].as<const T>(), *x = op["x"].as<const T>();
  T* dx = op["dx"].as<T>();
  shape.alignment = alignment_of({dy, weight, x, dx});
  Product product = linear_input_grad_product<T>(shape);
  GemmOperands operands = linear_input_grad_operands<T>(dy, weight, dx, args.workspace);
  const std::int64_t n = op["x"].elements();
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
  const ArgsOf<ops::LinearWeightGrad> op(args);
  LinearShape shape = weight_grad_shape(op);
  const T *x = op["x"].as<const T>(), *dy = op["dy"].as<const T>();
  S* dweight = op["dweight"].as<S>();
  shape.alignment = alignment_of({x, dy, dweight});
  const GemmOperands operands =
      linear_weight_grad_operands(x, dy, dweight, op.begins("dweight"), args.workspace);
  if constexpr (!std::is_same_v<T, double>)
    if (multiplies_in_fp8(args))
      return [=, factors = Fp8Backward(shape, args.workspace),
              product = weight_grad_in_fp8<T, S>(shape, kept_codes(op, shape), operands, libraries, stream)](
                 Stream on) {
        columns_to_fp8(dy, shape.rows, shape.out, factors.dy_columns, on);
        product(on);
      };
  return product_work(linear_weight_grad_product<T, S>(shape), operands, libraries, stream);
};

std::int64_t workspace(const OpShape&, std::int32_t) { return gemm_workspace; }

// Returns the workspace for a value [.., in] and one [.., out].
template <class Factors, class Op, OperandOf<Op> value, OperandOf<Op> other>
std::int64_t workspace_of(const OpShape& of, std::int32_t) {
  const ShapeOf<Op> s(of);
  if (s.integer("fp8") == 0) return gemm_workspace;
  const OperandShape& x = s[value];
  LinearShape shape{.rows = 0, .in = 1, .out = 0};
  for (int d = x.rank - static_cast<int>(s.integer("in_dims")); d < x.rank; ++d) shape.in *= x.dims[d].extent;
  shape.rows = x.elements() / shape.in;
  shape.out = s[other].elements() / shape.rows;
  return Factors(shape, nullptr).bytes;
}

// Returns the workspace for a weight's gradient, whose x may be codes.
std::int64_t weight_grad_workspace(const OpShape& of, std::int32_t) {
  const ShapeOf<ops::LinearWeightGrad> s(of);
  if (s.integer("fp8") == 0) return gemm_workspace;
  const OperandShape& w = s["dweight"];
  LinearShape shape{.rows = 0, .in = 1, .out = 0};
  for (int d = w.rank - static_cast<int>(s.integer("in_dims")); d < w.rank; ++d) shape.in *= w.dims[d].extent;
  shape.out = w.elements() / shape.in;
  shape.rows = s["dy"].elements() / shape.out;
  return Fp8Backward(shape, nullptr).bytes;
}

bool can_multiply(std::int64_t fp8, DType type) { return fp8 == 0 || type != DType::f64; }

Kernel of_values(DType type) {
  return by_value(type, []<class T>() -> Kernel { return runs_when_bound; });
}

Kernel select_linear(const OpShape& shape) {
  const ShapeOf<ops::Linear> s(shape);
  return same_type(s, {"x", "bias", "y"}) && (s.integer("fp8") == 2 || same_type(s, {"x", "weight"})) &&
                 can_multiply(s.integer("fp8"), s["x"].dtype)
             ? of_values(s["x"].dtype)
             : nullptr;
}

Kernel select_input_grad(const OpShape& shape) {
  const ShapeOf<ops::LinearInputGrad> s(shape);
  return same_type(s, {"dy", "dx"}) && (s.integer("fp8") == 2 || same_type(s, {"dy", "weight"})) &&
                 can_multiply(s.integer("fp8"), s["dy"].dtype)
             ? of_values(s["dy"].dtype)
             : nullptr;
}

Kernel select_gelu_grad(const OpShape& shape) {
  const ShapeOf<ops::LinearGeluGrad> s(shape);
  return same_type(s, {"dy", "weight", "x", "dx"}) ? of_values(s["dy"].dtype) : nullptr;
}

Kernel select_weight_grad(const OpShape& shape) {
  const ShapeOf<ops::LinearWeightGrad> s(shape);
  const bool fits = s.integer("fp8") == 2
                        ? s["dy"].dtype != DType::f64
                        : same_type(s, {"x", "dy"}) && can_multiply(s.integer("fp8"), s["x"].dtype);
  if (!fits) return nullptr;
  return by_sum(s, "dy", {"dweight"}, []<class T, class S>() -> Kernel { return runs_when_bound; });
}

// Binds by the type of dy: x may be codes.
Work bind_weight_grads(Launches launches, Libraries& libraries, Stream stream) {
  const KernelArgs& args = launches.front().args;
  const OpShape types = types_of(args);
  return by_sum(ShapeOf<ops::LinearWeightGrad>(types), "dy", {"dweight"}, [&]<class T, class S>() -> Work {
    return bind_weight_grad.template operator()<T, S>(args, libraries, stream);
  });
}

}  // namespace

std::vector<DeviceOp> linear_ops(const OpChoices&) {
  constexpr auto of_linear = workspace_of<Fp8Forward, ops::Linear, "x", "y">,
                 of_input_grad = workspace_of<Fp8Backward, ops::LinearInputGrad, "dx", "dy">;
  return {{{ops::Linear::kind, select_linear, of_linear}, bind_typed<bind_linear>},
          {{ops::LinearInputGrad::kind, select_input_grad, of_input_grad}, bind_typed<bind_input_grad>},
          {{ops::LinearGeluGrad::kind, select_gelu_grad, workspace}, bind_typed<bind_gelu_grad>},
          {{ops::LinearWeightGrad::kind, select_weight_grad, weight_grad_workspace,
            bits_of<ops::LinearWeightGrad>("dweight")},
           bind_weight_grads}};
}

}  // namespace prun::cuda
