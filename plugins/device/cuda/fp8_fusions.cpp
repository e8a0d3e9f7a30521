// Fuses products in fp8 with what comes before them: activations write the codes that are multiplied, and the
// gradient that flows back becomes codes once for both gradients.
#include <algorithm>
#include <optional>

#include "activation/cuda_fp8.hpp"
#include "fp8_work.hpp"
#include "fusion_match.hpp"
#include "prun/ops/activation.hpp"
#include "prun/ops/fp8_squares.hpp"

namespace prun::cuda {
namespace {

// ---------------------------------------------------------------- both gradients of a product

// Holds two launches, in either order.
struct Gradients {
  ArgsOf<ops::LinearInputGrad> input;
  ArgsOf<ops::LinearWeightGrad> weight;
  bool input_first;

  void* workspace() const { return static_cast<const KernelArgs&>(input).workspace; }
};

std::optional<Gradients> gradients_of(const Launch& a, const Launch& b) {
  if (!are<ops::LinearInputGrad, ops::LinearWeightGrad>(a, b)) return {};
  const bool input_first = is<ops::LinearInputGrad>(a);
  const ArgsOf<ops::LinearInputGrad> input((input_first ? a : b).args);
  const ArgsOf<ops::LinearWeightGrad> weight((input_first ? b : a).args);
  const bool fits = multiplies_in_fp8(input) && multiplies_in_fp8(weight) &&
                    input["dy"].data == weight["dy"].data && size_of(input["dy"].dtype) == 2;
  if (!fits) return {};
  return Gradients{input, weight, input_first};
}

// Makes work of both products, where `prepare` makes codes of the gradient that flows back.
template <class T, class S, class Prepare>
Work bind_products(const Gradients& of, const LinearShape& shape, Prepare prepare, Libraries& libraries,
                   Stream stream) {
  const ArgsOf<ops::LinearInputGrad>& input = of.input;
  const ArgsOf<ops::LinearWeightGrad>& weight = of.weight;
  const T* const dy = input["dy"].as<const T>();
  const Work dx = input_grad_in_fp8<T>(
      shape, kept_weight(input, shape, false),
      linear_input_grad_operands<T>(dy, input["weight"].as<T>(), input["dx"].as<T>(), of.workspace()),
      libraries, stream);
  const Work dweight = weight_grad_in_fp8<T, S>(
      shape, kept_codes(weight, shape),
      linear_weight_grad_operands<T, S>(weight["x"].as<T>(), dy, weight["dweight"].as<S>(),
                                        weight.begins("dweight"), of.workspace()),
      libraries, stream);
  return [prepare, dx, dweight, input_first = of.input_first](Stream on) {
    prepare(on);
    (input_first ? dx : dweight)(on);
    (input_first ? dweight : dx)(on);
  };
}

template <class T, class S>
LinearShape shape_of(const Gradients& of) {
  const ArgsOf<ops::LinearInputGrad>& op = of.input;
  LinearShape shape = shape_between(op["dx"], op["dy"], op.integer("in_dims"));
  shape.alignment = alignment_of(
      {op["weight"].as<T>(), op["dx"].as<T>(), of.weight["x"].as<T>(), of.weight["dweight"].as<S>()});
  return shape;
}

// Calls bind<T, S>() for values and the type that the weight's gradient is summed in.
template <class Bind>
Work with_types(const Gradients& of, Bind bind) {
  const OpShape types = types_of(of.weight);
  return by_sum(ShapeOf<ops::LinearWeightGrad>(types), "dy", {"dweight"}, [&]<class T, class S>() -> Work {
    if constexpr (is_half<T>)
      return bind.template operator()<T, S>();
    else
      throw_error(ErrorCode::internal, "a product in fp8 of wider values");
  });
}

std::size_t is_backward(Launches left) { return left.size() >= 2 && gradients_of(left[0], left[1]) ? 2 : 0; }

Work bind_backward(Launches launches, Libraries& libraries, Stream stream) {
  const Gradients of = *gradients_of(launches[0], launches[1]);
  return with_types(of, [&]<class T, class S>() -> Work {
    const LinearShape shape = shape_of<T, S>(of);
    const auto prepare = [shape, dy = of.input["dy"].as<const T>(),
                          factors = Fp8Backward(shape, of.workspace())](Stream on) {
      rows_and_columns_to_fp8(dy, shape.rows, shape.out, factors.dy, factors.dy_columns, on);
    };
    return bind_products<T, S>(of, shape, prepare, libraries, stream);
  });
}

// ---------------------------------------------------------------- an activation and a product

// All activations have the same operands, and so have all of their gradients.
using AnyActivation = ops::Gelu;
using AnyActivationGrad = ops::GeluGrad;

std::optional<Activation> activation_of(std::string_view op) {
  if (op == "gelu") return Activation::gelu;
  if (op == "swiglu") return Activation::swiglu;
  if (op == "geglu") return Activation::geglu;
  return {};
}

// States rows and width of the values it makes, or of the gradient that it takes.
struct ActivationShape {
  Activation kind;
  std::int64_t rows, width;

  ActivationShape(Activation of, const Tensor& x) : kind(of) {
    const bool gated = of != Activation::gelu;
    rows = x.outer(gated ? 2 : 1);
    width = x.inner(1);
  }
  bool fits() const { return kind == Activation::gelu || width % fp8_block == 0; }
};

bool all_aligned(std::initializer_list<const void*> operands) {
  return std::all_of(operands.begin(), operands.end(),
                     [](const void* operand) { return reinterpret_cast<std::uintptr_t>(operand) % 16 == 0; });
}

// Says whether a launch keeps codes of the values that a product has multiplied.
bool keeps_codes(const Launch& product, const Launch& next) {
  if (!is<ops::EncodeFp8Squares>(next)) return false;
  const ArgsOf<ops::EncodeFp8Squares> encode(next.args);
  const ArgsOf<ops::Linear> op(product.args);
  return encode["x"].data == op["x"].data && encode.integer("in_dims") == op.integer("in_dims") &&
         encode.integer("by_rows") == 0;
}

Fp8Factor codes_kept_by(const Launch& encode, const LinearShape& s) {
  const Tensor& codes = operand<ops::EncodeFp8Squares>(encode, "codes");
  const Fp8Squares squares{s.rows, s.in};
  return {squares.codes(codes), squares.scales(codes)};
}

std::size_t is_forward(Launches left) {
  if (left.size() < 2 || !is<ops::Linear>(left[1])) return 0;
  const std::optional<Activation> kind = activation_of(left[0].op.view());
  const ArgsOf<AnyActivation> gate(left[0].args);
  const ArgsOf<ops::Linear> op(left[1].args);
  const bool fits = kind && gate["y"].data == op["x"].data && multiplies_in_fp8(op) &&
                    op.integer("in_dims") == 1 && size_of(op["x"].dtype) == 2 &&
                    all_aligned({gate["x"].data, gate["y"].data}) && ActivationShape(*kind, gate["x"]).fits();
  return fits ? 2 : 0;
}

// Matches the same launches with one more, which keeps codes of the activation's result.
std::size_t is_forward_with_codes(Launches left) {
  return left.size() > 2 && is_forward(left) != 0 && keeps_codes(left[1], left[2]) ? 3 : 0;
}

template <class T>
Work bind_forward_of(Launches launches, Activation kind, Libraries& libraries, Stream stream) {
  const ArgsOf<AnyActivation> gate(launches[0].args);
  const KernelArgs& args = launches[1].args;
  const ArgsOf<ops::Linear> op(args);
  LinearShape shape = shape_between(op["x"], op["y"], op.integer("in_dims"));
  const T *weight = op["weight"].as<const T>(), *bias = op["bias"].as<const T>();
  T* const y = op["y"].as<T>();
  shape.bias = bias != nullptr;
  shape.alignment = alignment_of({weight, bias, y});
  const GemmOperands operands =
      linear_operands<T>(op["x"].as<const T>(), weight, bias, nullptr, y, args.workspace);
  std::optional<Fp8Factor> kept;
  if (launches.size() > 2) kept = codes_kept_by(launches[2], shape);
  return [of = ActivationShape(kind, gate["x"]), kept, x = gate["x"].as<const T>(), made = gate["y"].as<T>(),
          factors = Fp8Forward(shape, args.workspace),
          product =
              linear_in_fp8<T>(shape, kept_weight(op, shape, true), operands, libraries, stream)](Stream on) {
    activation_to_fp8(of.kind, x, made, of.rows, of.width, factors.x, kept, on);
    product(on);
  };
}

Work bind_forward(Launches launches, Libraries& libraries, Stream stream) {
  return by_value(operand<AnyActivation>(launches[0], "x").dtype, [&]<class T>() -> Work {
    if constexpr (is_half<T>)
      return bind_forward_of<T>(launches, *activation_of(launches[0].op.view()), libraries, stream);
    else
      throw_error(ErrorCode::internal, "a product in fp8 of wider values");
  });
}

// ---------------------------------------------------------------- a product and codes for backward

std::size_t is_product_with_codes(Launches left) {
  const bool fits = left.size() >= 2 && is<ops::Linear>(left[0]) && multiplies_in_fp8(left[0].args) &&
                    size_of(operand<ops::Linear>(left[0], "x").dtype) == 2 && keeps_codes(left[0], left[1]);
  return fits ? 2 : 0;
}

Work bind_product_with_codes(Launches launches, Libraries& libraries, Stream stream) {
  const KernelArgs& args = launches[0].args;
  const ArgsOf<ops::Linear> op(args);
  return by_value(op["x"].dtype, [&]<class T>() -> Work {
    if constexpr (!is_half<T>) {
      throw_error(ErrorCode::internal, "a product in fp8 of wider values");
    } else {
      LinearShape shape = shape_between(op["x"], op["y"], op.integer("in_dims"));
      const T *x = op["x"].as<const T>(), *weight = op["weight"].as<const T>(),
              *bias = op["bias"].as<const T>();
      T* const y = op["y"].as<T>();
      shape.bias = bias != nullptr;
      shape.alignment = alignment_of({x, weight, bias, y});
      const GemmOperands operands = linear_operands<T>(x, weight, bias, nullptr, y, args.workspace);
      return [x, shape, kept = codes_kept_by(launches[1], shape), factors = Fp8Forward(shape, args.workspace),
              product = linear_in_fp8<T>(shape, kept_weight(op, shape, true), operands, libraries, stream)](
                 Stream on) {
        rows_and_squares_to_fp8(x, shape.rows, shape.in, factors.x, kept, on);
        product(on);
      };
    }
  });
}

// ---------------------------------------------------- an activation's gradient and both of a product

std::optional<Activation> activation_of_gradient(std::string_view op) {
  constexpr std::string_view end = "_grad";
  return op.ends_with(end) ? activation_of(op.substr(0, op.size() - end.size())) : std::nullopt;
}

std::size_t is_whole_backward(Launches left) {
  if (left.size() < 3) return 0;
  const std::optional<Activation> kind = activation_of_gradient(left[0].op.view());
  const std::optional<Gradients> of = gradients_of(left[1], left[2]);
  const ArgsOf<AnyActivationGrad> gate(left[0].args);
  const bool fits = kind && of && gate["dx"].data == of->input["dy"].data &&
                    all_aligned({gate["dy"].data, gate["x"].data, gate["dx"].data}) &&
                    ActivationShape(*kind, gate["x"]).fits();
  return fits ? 3 : 0;
}

Work bind_whole_backward(Launches launches, Libraries& libraries, Stream stream) {
  const Gradients of = *gradients_of(launches[1], launches[2]);
  const ArgsOf<AnyActivationGrad> gate(launches[0].args);
  return with_types(of, [&]<class T, class S>() -> Work {
    const LinearShape shape = shape_of<T, S>(of);
    const auto prepare = [by = ActivationShape(*activation_of_gradient(launches[0].op.view()), gate["x"]),
                          dy = gate["dy"].as<const T>(), x = gate["x"].as<const T>(), dx = gate["dx"].as<T>(),
                          factors = Fp8Backward(shape, of.workspace())](Stream on) {
      activation_grad_to_fp8(by.kind, dy, x, dx, by.rows, by.width, factors.dy, factors.dy_columns, on);
    };
    return bind_products<T, S>(of, shape, prepare, libraries, stream);
  });
}

}  // namespace

std::vector<Fusion> fp8_fusions() {
  return {{is_whole_backward, bind_whole_backward},
          {is_backward, bind_backward},
          {is_forward_with_codes, bind_forward},
          {is_forward, bind_forward},
          {is_product_with_codes, bind_product_with_codes}};
}

}  // namespace prun::cuda
