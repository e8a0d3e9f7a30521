// Fuses launches that follow each other: all their results are written, but some are not read again. Whether
// memory lets them be fused, the device decides (may_be_one).
#include <optional>

#include "activation/cuda.hpp"
#include "bias/cuda.hpp"
#include "fp8_work.hpp"
#include "fusion_match.hpp"
#include "norm/cuda.hpp"
#include "prun/ops/activation.hpp"
#include "prun/ops/bias.hpp"
#include "prun/ops/elementwise.hpp"
#include "prun/ops/linear.hpp"
#include "prun/ops/norm.hpp"

namespace prun::cuda {
namespace {

// ---------------------------------------------------------------- a residual and the norm after it

template <class Norm>
bool is_norm_of(const Launch& add, const Launch& norm) {
  return is<Norm>(norm) && at<ops::Add>(add, "y") == at<Norm>(norm, "x");
}

std::size_t is_residual_norm(Launches left) {
  if (left.size() < 2 || !is<ops::Add>(left[0])) return 0;
  return is_norm_of<ops::LayerNorm>(left[0], left[1]) || is_norm_of<ops::RmsNorm>(left[0], left[1]) ? 2 : 0;
}

// `dims` counts the dimensions of a row.
template <class T, class Op>
NormForward<T> residual_norm(const ArgsOf<ops::Add>& add, const ArgsOf<Op>& op, std::int64_t dims = 1) {
  NormForward<T> norm{};
  norm.x = add["a"].as<const T>();
  norm.residual = add["b"].as<const T>();
  norm.sum = add["y"].as<T>();
  norm.gain = op["gain"].template as<const T>();
  norm.rows = op["x"].outer(static_cast<int>(dims));
  norm.width = op["x"].inner(static_cast<int>(dims));
  norm.eps = op.real("eps");
  norm.y = op["y"].template as<T>();
  norm.rstd = op["rstd"].template as<Compute<T>>();
  return norm;
}

template <class T>
Work bind_residual_layernorm(const ArgsOf<ops::Add>& add, const ArgsOf<ops::LayerNorm>& op) {
  NormForward<T> norm = residual_norm<T>(add, op);
  norm.bias = op["bias"].as<const T>();
  norm.mean = op["mean"].as<Compute<T>>();
  return [norm](Stream stream) { layernorm(norm, stream); };
}

template <class T>
Work bind_residual_rmsnorm(const ArgsOf<ops::Add>& add, const ArgsOf<ops::RmsNorm>& op) {
  NormForward<T> norm = residual_norm<T>(add, op, op.integer("dims"));
  norm.offset = op.real("offset");
  return [norm](Stream stream) { rmsnorm(norm, stream); };
}

Work bind_residual_norm(Launches launches, Libraries&, Stream) {
  const ArgsOf<ops::Add> add(launches[0].args);
  const KernelArgs& norm = launches[1].args;
  return by_value(add["a"].dtype, [&]<class T>() -> Work {
    return is<ops::LayerNorm>(launches[1]) ? bind_residual_layernorm<T>(add, ArgsOf<ops::LayerNorm>(norm))
                                           : bind_residual_rmsnorm<T>(add, ArgsOf<ops::RmsNorm>(norm));
  });
}

// ---------------------------------------------------------------- a norm's gradients, and that of a bias

// Holds two launches, in either order.
struct NormGradients {
  const Launch *input, *weight;
};

template <class Input, class Weight>
std::optional<NormGradients> norm_gradients(const Launch& a, const Launch& b) {
  if (!are<Input, Weight>(a, b)) return {};
  const NormGradients of = is<Input>(a) ? NormGradients{&a, &b} : NormGradients{&b, &a};
  const bool fits = at<Input>(*of.input, "dy") == at<Weight>(*of.weight, "dy") &&
                    at<Input>(*of.input, "x") == at<Weight>(*of.weight, "x");
  return fits ? std::optional(of) : std::nullopt;
}
std::optional<NormGradients> layernorm_gradients(const Launch& a, const Launch& b) {
  return norm_gradients<ops::LayerNormInputGrad, ops::LayerNormWeightGrad>(a, b);
}
std::optional<NormGradients> rmsnorm_gradients(const Launch& a, const Launch& b) {
  return norm_gradients<ops::RmsNormInputGrad, ops::RmsNormWeightGrad>(a, b);
}

std::size_t is_norm_backward(Launches left) {
  if (left.size() < 2) return 0;
  return layernorm_gradients(left[0], left[1]) || rmsnorm_gradients(left[0], left[1]) ? 2 : 0;
}

template <class Input, class Weight>
bool joins_gradients(const NormGradients& of, const Launch& earlier) {
  const Tensor &dgain = operand<Weight>(*of.weight, "dgain"),
               &dbias = operand<ops::BiasGrad>(earlier, "dbias");
  return at<ops::BiasGrad>(earlier, "dy") == at<Input>(*of.input, "residual") && dgain.data &&
         dgain.dtype == dbias.dtype && dgain.elements() == dbias.elements();
}

// Says whether `earlier` sums the gradient that bypasses the norm, as that of a bias added behind it does:
// the kernel reads it as the residual.
bool joins_norm_backward(Launches some, const Launch& earlier) {
  if (!is<ops::BiasGrad>(earlier)) return false;
  if (const auto of = layernorm_gradients(some[0], some[1]))
    return joins_gradients<ops::LayerNormInputGrad, ops::LayerNormWeightGrad>(*of, earlier);
  return joins_gradients<ops::RmsNormInputGrad, ops::RmsNormWeightGrad>(*rmsnorm_gradients(some[0], some[1]),
                                                                        earlier);
}

template <class T, class S, class Input, class Weight>
NormBackward<T, S> norm_backward(const ArgsOf<Input>& input, const ArgsOf<Weight>& weight, const Launch* bias,
                                 std::int64_t dims = 1) {
  NormBackward<T, S> norm{};
  norm.dy = input["dy"].template as<const T>();
  norm.x = input["x"].template as<const T>();
  norm.gain = input["gain"].template as<const T>();
  norm.rows = input["x"].outer(static_cast<int>(dims));
  norm.width = input["x"].inner(static_cast<int>(dims));
  norm.workspace = static_cast<const KernelArgs&>(weight).workspace;
  norm.rstd = input["rstd"].template as<const Compute<T>>();
  norm.residual = input["residual"].template as<const T>();
  norm.dx = input["dx"].template as<T>();
  norm.dgain = sum_in<S>(weight, "dgain");
  if (bias) norm.residual_sum = sum_in<S>(ArgsOf<ops::BiasGrad>(bias->args), "dbias");
  return norm;
}

Work bind_layernorm_backward(const NormGradients& of, const Launch* bias) {
  const ArgsOf<ops::LayerNormInputGrad> input(of.input->args);
  const ArgsOf<ops::LayerNormWeightGrad> weight(of.weight->args);
  const OpShape types = types_of(weight);
  return by_sum(ShapeOf<ops::LayerNormWeightGrad>(types), "dy", {"dgain", "dbias"},
                [&]<class T, class S>() -> Work {
                  NormBackward<T, S> norm = norm_backward<T, S>(input, weight, bias);
                  norm.mean = input["mean"].as<const Compute<T>>();
                  norm.dbias = sum_in<S>(weight, "dbias");
                  return [norm](Stream stream) { layernorm_backward(norm, stream); };
                });
}

Work bind_rmsnorm_backward(const NormGradients& of, const Launch* bias) {
  const ArgsOf<ops::RmsNormInputGrad> input(of.input->args);
  const ArgsOf<ops::RmsNormWeightGrad> weight(of.weight->args);
  const OpShape types = types_of(weight);
  return by_sum(ShapeOf<ops::RmsNormWeightGrad>(types), "dy", {"dgain"}, [&]<class T, class S>() -> Work {
    NormBackward<T, S> norm = norm_backward<T, S>(input, weight, bias, input.integer("dims"));
    norm.offset = input.real("offset");
    return [norm](Stream stream) { rmsnorm_backward(norm, stream); };
  });
}

Work bind_norm_backward(Launches launches, Libraries&, Stream) {
  const Launch* const bias = launches.size() > 2 ? &launches[2] : nullptr;
  if (const auto of = layernorm_gradients(launches[0], launches[1]))
    return bind_layernorm_backward(*of, bias);
  return bind_rmsnorm_backward(*rmsnorm_gradients(launches[0], launches[1]), bias);
}

// ---------------------------------------------------------------- a product with bias, and gelu

std::size_t is_linear_gelu(Launches left) {
  if (left.size() < 2 || !is<ops::Linear>(left[0]) || !is<ops::Gelu>(left[1])) return 0;
  const ArgsOf<ops::Linear> op(left[0].args);
  const bool fits = op.has("bias") && op["y"].data == at<ops::Gelu>(left[1], "x") &&
                    op["x"].dtype == DType::bf16 && !multiplies_in_fp8(op);
  return fits ? 2 : 0;
}

Work bind_linear_gelu(Launches launches, Libraries& libraries, Stream stream) {
  const KernelArgs& linear = launches[0].args;
  const ArgsOf<ops::Linear> op(linear);
  const Tensor& made = operand<ops::Gelu>(launches[1], "y");
  const bf16 *x = op["x"].as<const bf16>(), *weight = op["weight"].as<const bf16>(),
             *bias = op["bias"].as<const bf16>();
  bf16 *before = op["y"].as<bf16>(), *after = made.as<bf16>();
  LinearShape shape = linear_shape(op["weight"], op["x"], op.integer("in_dims"));
  shape.bias = true;
  shape.alignment = alignment_of({x, weight, bias, before, after});
  Product product = linear_product<bf16>(shape);
  GemmOperands operands = linear_operands<bf16>(x, weight, bias, nullptr, before, linear.workspace);
  const std::int64_t n = made.elements();
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
  if (left.size() < 2 || !is<ops::LinearWeightGrad>(left[0]) || !is<ops::BiasGrad>(left[1])) return 0;
  const ArgsOf<ops::LinearWeightGrad> weight(left[0].args);
  const ArgsOf<ops::BiasGrad> bias(left[1].args);
  const bool fits = weight["dy"].data == bias["dy"].data && weight.begins("dweight") &&
                    bias.begins("dbias") && weight["x"].dtype == DType::bf16 && !multiplies_in_fp8(weight) &&
                    weight["dweight"].dtype == bias["dbias"].dtype;
  return fits ? 2 : 0;
}

template <class S>
Work bind_linear_gradients_of(const KernelArgs& weight, const KernelArgs& bias, Libraries& libraries,
                              Stream stream) {
  const ArgsOf<ops::LinearWeightGrad> op(weight);
  const bf16 *x = op["x"].as<const bf16>(), *dy = op["dy"].as<const bf16>();
  S *dweight = op["dweight"].as<S>(), *dbias = ArgsOf<ops::BiasGrad>(bias)["dbias"].as<S>();
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
  if (operand<ops::LinearWeightGrad>(launches[0], "dweight").dtype == DType::bf16)
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
