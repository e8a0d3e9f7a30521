// Fuses launches that follow each other: all their results are written, but some are not read again. Whether
// memory lets them be fused, the device decides (may_be_one).
#include "activation/cuda.hpp"
#include "bias/cuda.hpp"
#include "fp8_work.hpp"
#include "fusion_match.hpp"
#include "norm/cuda.hpp"
#include "prun/ops/linear.hpp"

namespace prun::cuda {
namespace {

// ---------------------------------------------------------------- a residual and the norm after it

std::size_t is_residual_norm(Launches left) {
  if (left.size() < 2 || !is(left[0], "add") || at(left[0], 2) != at(left[1], 0)) return 0;
  return is(left[1], "layernorm") || is(left[1], "rmsnorm") ? 2 : 0;
}

template <class T>
Work bind_residual_norm_of(const KernelArgs& add, const KernelArgs& args, bool centered) {
  NormForward<T> norm{};
  norm.x = data<const T>(add, 0);
  norm.residual = data<const T>(add, 1);
  norm.sum = data<T>(add, 2);
  norm.gain = data<const T>(args, 1);
  const int dims = centered ? 1 : static_cast<int>(args.attrs[2].i);
  norm.rows = args.operands[0].outer(dims);
  norm.width = args.operands[0].inner(dims);
  norm.eps = args.attrs[0].f;
  if (!centered) norm.offset = args.attrs[1].f;
  const int y = centered ? 3 : 2;
  norm.y = data<T>(args, y);
  norm.rstd = data<Compute<T>>(args, centered ? 5 : 3);
  if (!centered) return [norm](Stream stream) { rmsnorm(norm, stream); };
  norm.bias = data<const T>(args, 2);
  norm.mean = data<Compute<T>>(args, 4);
  return [norm](Stream stream) { layernorm(norm, stream); };
}

Work bind_residual_norm(Launches launches, Libraries&, Stream) {
  return by_value(launches[0].args.operands[0].dtype, [&]<class T>() -> Work {
    return bind_residual_norm_of<T>(launches[0].args, launches[1].args, is(launches[1], "layernorm"));
  });
}

// ---------------------------------------------------------------- a norm's gradients, and that of a bias

std::size_t is_norm_backward(Launches left) {
  if (left.size() < 2 || at(left[0], 0) != at(left[1], 0) || at(left[0], 1) != at(left[1], 1)) return 0;
  const bool fits = are(left[0], left[1], "layernorm_input_grad", "layernorm_weight_grad") ||
                    are(left[0], left[1], "rmsnorm_input_grad", "rmsnorm_weight_grad");
  return fits ? 2 : 0;
}

bool is_input_grad(const Launch& launch) { return launch.op.view().ends_with("_input_grad"); }

// Says whether `earlier` sums the gradient that bypasses the norm, as that of a bias added behind it does:
// the kernel reads it as the residual.
bool joins_norm_backward(Launches some, const Launch& earlier) {
  if (!is(earlier, "bias_grad")) return false;
  const Launch &input = some[is_input_grad(some[0]) ? 0 : 1], &weight = some[is_input_grad(some[0]) ? 1 : 0];
  const bool centered = is(input, "layernorm_input_grad");
  const Tensor &dgain = weight.args.operands[centered ? 4 : 3], &dbias = earlier.args.operands[1];
  return at(earlier, 0) == at(input, centered ? 5 : 4) && dgain.data && dgain.dtype == dbias.dtype &&
         dgain.elements() == dbias.elements();
}

template <class T, class S>
Work bind_norm_backward_of(const KernelArgs& input, const KernelArgs& weight, const KernelArgs* bias,
                           bool centered) {
  NormBackward<T, S> norm{};
  norm.dy = data<const T>(input, 0);
  norm.x = data<const T>(input, 1);
  norm.gain = data<const T>(input, 2);
  const int dims = centered ? 1 : static_cast<int>(input.attrs[1].i);
  norm.rows = input.operands[1].outer(dims);
  norm.width = input.operands[1].inner(dims);
  if (!centered) norm.offset = input.attrs[0].f;
  norm.workspace = weight.workspace;
  norm.rstd = data<const Compute<T>>(input, centered ? 4 : 3);
  norm.residual = data<const T>(input, centered ? 5 : 4);
  norm.dx = data<T>(input, centered ? 6 : 5);
  norm.dgain = sum_in<S>(weight, centered ? 4 : 3);
  if (bias) norm.residual_sum = sum_in<S>(*bias, 1);
  if (!centered) return [norm](Stream stream) { rmsnorm_backward(norm, stream); };
  norm.mean = data<const Compute<T>>(input, 3);
  norm.dbias = sum_in<S>(weight, 5);
  return [norm](Stream stream) { layernorm_backward(norm, stream); };
}

Work bind_norm_backward(Launches launches, Libraries&, Stream) {
  const bool centered = launches[0].op.view().starts_with("layernorm");
  const bool input_first = is_input_grad(launches[0]);
  const KernelArgs &input = launches[input_first ? 0 : 1].args, &weight = launches[input_first ? 1 : 0].args;
  const KernelArgs* const bias = launches.size() > 2 ? &launches[2].args : nullptr;
  const auto bind = [&]<class T, class S>() -> Work {
    return bind_norm_backward_of<T, S>(input, weight, bias, centered);
  };
  return centered ? by_sum(types_of(weight), 0, {4, 5}, bind) : by_sum(types_of(weight), 0, {3}, bind);
}

// ---------------------------------------------------------------- a product with bias, and gelu

std::size_t is_linear_gelu(Launches left) {
  const bool fits = left.size() >= 2 && is(left[0], "linear") && is(left[1], "gelu") && at(left[0], 2) &&
                    at(left[0], 3) == at(left[1], 0) && left[0].args.operands[0].dtype == DType::bf16 &&
                    !multiplies_in_fp8(left[0].args);
  return fits ? 2 : 0;
}

Work bind_linear_gelu(Launches launches, Libraries& libraries, Stream stream) {
  const KernelArgs &linear = launches[0].args, &gelu = launches[1].args;
  const bf16 *x = data<const bf16>(linear, 0), *weight = data<const bf16>(linear, 1),
             *bias = data<const bf16>(linear, 2);
  bf16 *before = data<bf16>(linear, 3), *after = data<bf16>(gelu, 1);
  const ArgsOf<ops::Linear> op(linear);
  LinearShape shape = linear_shape(op["weight"], op["x"], op.integer("in_dims"));
  shape.bias = true;
  shape.alignment = alignment_of({x, weight, bias, before, after});
  Product product = linear_product<bf16>(shape);
  GemmOperands operands = linear_operands<bf16>(x, weight, bias, nullptr, before, linear.workspace);
  const std::int64_t n = gelu.operands[1].elements();
  const auto apart = [&, product, operands]() -> Work {
    return [alone = product_work(product, operands, libraries, stream), before, after, n](Stream on) {
      alone(on);
      cuda::gelu(before, after, n, on);
    };
  };
  product.epilogue = Epilogue::bias_gelu;
  operands.d = after;
  operands.aux = before;
  return together_or_apart(product, operands, apart, libraries, stream);
}

// ---------------------------------------------------------------- gradients of a weight and its bias

// Both sums must begin here: the library's sum over rows is not added to anything.
std::size_t is_linear_gradients(Launches left) {
  const bool fits = left.size() >= 2 && is(left[0], "linear_weight_grad") && is(left[1], "bias_grad") &&
                    at(left[0], 1) == at(left[1], 0) && left[0].args.begins(2) && left[1].args.begins(1) &&
                    left[0].args.operands[0].dtype == DType::bf16 && !multiplies_in_fp8(left[0].args) &&
                    left[0].args.operands[2].dtype == left[1].args.operands[1].dtype;
  return fits ? 2 : 0;
}

template <class S>
Work bind_linear_gradients_of(const KernelArgs& weight, const KernelArgs& bias, Libraries& libraries,
                              Stream stream) {
  const bf16 *x = data<const bf16>(weight, 0), *dy = data<const bf16>(weight, 1);
  S *dweight = data<S>(weight, 2), *dbias = data<S>(bias, 1);
  const ArgsOf<ops::LinearWeightGrad> op(weight);
  LinearShape shape = linear_shape(op["dweight"], op["x"], op.integer("in_dims"));
  shape.alignment = alignment_of({x, dy, dweight, dbias});
  Product product = linear_weight_grad_product<bf16, S>(shape);
  GemmOperands operands = linear_weight_grad_operands(x, dy, dweight, true, weight.workspace);
  const auto apart = [&, product, operands]() -> Work {
    return [alone = product_work(product, operands, libraries, stream), dy, dbias, shape,
            workspace = bias.workspace](Stream on) {
      alone(on);
      bias_grad<bf16, S>(dy, {dbias, true}, shape.rows, shape.out, workspace, on);
    };
  };
  product.epilogue = Epilogue::bias_grad;
  operands.aux = dbias;
  return together_or_apart(product, operands, apart, libraries, stream);
}

Work bind_linear_gradients(Launches launches, Libraries& libraries, Stream stream) {
  const KernelArgs &weight = launches[0].args, &bias = launches[1].args;
  if (weight.operands[2].dtype == DType::bf16)
    return bind_linear_gradients_of<bf16>(weight, bias, libraries, stream);
  return bind_linear_gradients_of<float>(weight, bias, libraries, stream);
}

}  // namespace

std::vector<Fusion> fusions() {
  std::vector<Fusion> all = {{is_residual_norm, bind_residual_norm, true},
                             {is_norm_backward, bind_norm_backward, false, joins_norm_backward},
                             {is_linear_gelu, bind_linear_gelu},
                             {is_linear_gradients, bind_linear_gradients}};
  for (const Fusion& fusion : fp8_fusions()) all.push_back(fusion);
  return all;
}

}  // namespace prun::cuda
