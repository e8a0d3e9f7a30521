// linear and its gradients, as products of matrices.
#include "cuda/activation.hpp"
#include "linear_work.hpp"

namespace prun::cuda {
namespace {

constexpr auto bind_linear = []<class T>(const KernelArgs& args, Libraries& libraries,
                                         Stream stream) -> Work {
  LinearShape shape = linear_shape(args, 1, 0);
  const T *x = data<const T>(args, 0), *weight = data<const T>(args, 1), *bias = data<const T>(args, 2);
  T* y = data<T>(args, 3);
  shape.bias = bias != nullptr;
  shape.alignment = alignment_of({x, weight, bias, y});
  return product_work(linear_product<T>(shape),
                      linear_operands<T>(x, weight, bias, nullptr, y, args.workspace), libraries, stream);
};

constexpr auto bind_input_grad = []<class T>(const KernelArgs& args, Libraries& libraries,
                                             Stream stream) -> Work {
  LinearShape shape = linear_shape(args, 1, 2);
  const T *dy = data<const T>(args, 0), *weight = data<const T>(args, 1);
  T* dx = data<T>(args, 2);
  shape.alignment = alignment_of({dy, weight, dx});
  return product_work(linear_input_grad_product<T>(shape),
                      linear_input_grad_operands<T>(dy, weight, dx, args.workspace), libraries, stream);
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
  LinearShape shape = linear_shape(args, 2, 0);
  const T *x = data<const T>(args, 0), *dy = data<const T>(args, 1);
  S* dweight = data<S>(args, 2);
  shape.alignment = alignment_of({x, dy, dweight});
  return product_work(linear_weight_grad_product<T, S>(shape),
                      linear_weight_grad_operands(x, dy, dweight, args.begins(2), args.workspace), libraries,
                      stream);
};

std::int64_t workspace(const OpShape&, std::int32_t) { return gemm_workspace; }

Kernel of_values(DType type) {
  return by_value(type, []<class T>() -> Kernel { return runs_when_bound; });
}

Kernel select_linear(const OpShape& s) {
  return same_type(s, {0, 1, 2, 3}) ? of_values(s.operand[0].dtype) : nullptr;
}

Kernel select_input_grad(const OpShape& s) {
  return same_type(s, {0, 1, 2}) ? of_values(s.operand[0].dtype) : nullptr;
}

Kernel select_gelu_grad(const OpShape& s) {
  return same_type(s, {0, 1, 2, 3}) ? of_values(s.operand[0].dtype) : nullptr;
}

Kernel select_weight_grad(const OpShape& s) {
  if (!same_type(s, {0, 1})) return nullptr;
  return by_sum(s, 0, {2}, []<class T, class S>() -> Kernel { return runs_when_bound; });
}

}  // namespace

std::vector<DeviceOp> linear_ops(const OpChoices&) {
  return {{{"linear", select_linear, workspace}, bind_typed<bind_linear>},
          {{"linear_input_grad", select_input_grad, workspace}, bind_typed<bind_input_grad>},
          {{"linear_gelu_grad", select_gelu_grad, workspace}, bind_typed<bind_gelu_grad>},
          {{"linear_weight_grad", select_weight_grad, workspace, 1u << 2}, bind_typed<bind_weight_grad, 2>}};
}

}  // namespace prun::cuda
