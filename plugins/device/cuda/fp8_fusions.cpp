// Fuses products in fp8 with what comes before them: activations write the codes that are multiplied, and the
// gradient that flows back becomes codes once for both gradients.
#include <optional>

#include "activation/cuda_fp8.hpp"
#include "fp8_work.hpp"
#include "fusion_match.hpp"

namespace prun::cuda {
namespace {

// ---------------------------------------------------------------- both gradients of a product

// Holds two launches, in either order.
struct Gradients {
  const KernelArgs *input, *weight;
  bool input_first;
};

std::optional<Gradients> gradients_of(const Launch& a, const Launch& b) {
  if (!are(a, b, "linear_input_grad", "linear_weight_grad")) return {};
  const bool input_first = is(a, "linear_input_grad");
  const Launch &input = input_first ? a : b, &weight = input_first ? b : a;
  const bool fits = multiplies_in_fp8(input.args) && multiplies_in_fp8(weight.args) &&
                    at(input, 0) == at(weight, 1) && size_of(input.args.operands[0].dtype) == 2;
  if (!fits) return {};
  return Gradients{&input.args, &weight.args, input_first};
}

// Makes work of both products, where `prepare` makes codes of the gradient that flows back.
template <class T, class S, class Prepare>
Work bind_products(const Gradients& of, const LinearShape& shape, Prepare prepare, Libraries& libraries,
                   Stream stream) {
  const KernelArgs &input = *of.input, &weight = *of.weight;
  const T* const dy = data<const T>(input, 0);
  const Work dx = input_grad_in_fp8<T>(
      shape, kept_weight(ArgsOf<ops::LinearInputGrad>(input), shape, false),
      linear_input_grad_operands<T>(dy, data<T>(input, 1), data<T>(input, 2), input.workspace), libraries,
      stream);
  const Work dweight =
      weight_grad_in_fp8<T, S>(shape, kept_codes(ArgsOf<ops::LinearWeightGrad>(weight), shape),
                               linear_weight_grad_operands<T, S>(data<T>(weight, 0), dy, data<S>(weight, 2),
                                                                 weight.begins(2), input.workspace),
                               libraries, stream);
  return [=, input_first = of.input_first](Stream on) {
    prepare(on);
    (input_first ? dx : dweight)(on);
    (input_first ? dweight : dx)(on);
  };
}

template <class T, class S>
LinearShape shape_of(const Gradients& of) {
  const ArgsOf<ops::LinearInputGrad> op(*of.input);
  LinearShape shape = shape_between(op["dx"], op["dy"], op.integer("in_dims"));
  shape.alignment = alignment_of(
      {data<T>(*of.input, 1), data<T>(*of.input, 2), data<T>(*of.weight, 0), data<S>(*of.weight, 2)});
  return shape;
}

// Calls bind<T, S>() for values and the type that the weight's gradient is summed in.
template <class Bind>
Work with_types(const Gradients& of, Bind bind) {
  return by_sum(types_of(*of.weight), 1, {2}, [&]<class T, class S>() -> Work {
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
    const auto prepare = [shape, dy = data<const T>(*of.input, 0),
                          factors = Fp8Backward(shape, of.input->workspace)](Stream on) {
      rows_and_columns_to_fp8(dy, shape.rows, shape.out, factors.dy, factors.dy_columns, on);
    };
    return bind_products<T, S>(of, shape, prepare, libraries, stream);
  });
}

// ---------------------------------------------------------------- an activation and a product

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

bool all_aligned(const KernelArgs& args, int operands) {
  for (int i = 0; i < operands; ++i)
    if (reinterpret_cast<std::uintptr_t>(args.operands[i].data) % 16 != 0) return false;
  return true;
}

// Says whether a launch keeps codes of the values that a product has multiplied.
bool keeps_codes(const Launch& product, const Launch& next) {
  return is(next, "encode_fp8_squares") && at(next, 0) == at(product, 0) &&
         next.args.attrs[0].i == product.args.attrs[0].i && next.args.attrs[1].i == 0;
}

Fp8Factor codes_kept_by(const Launch& encode, const LinearShape& s) {
  const Tensor& codes = encode.args.operands[1];
  const Fp8Squares squares{s.rows, s.in};
  return {squares.codes(codes), squares.scales(codes)};
}

std::size_t is_forward(Launches left) {
  if (left.size() < 2 || !is(left[1], "linear") || at(left[0], 1) != at(left[1], 0)) return 0;
  const std::optional<Activation> kind = activation_of(left[0].op.view());
  const bool fits = kind && multiplies_in_fp8(left[1].args) && left[1].args.attrs[0].i == 1 &&
                    size_of(left[1].args.operands[0].dtype) == 2 && all_aligned(left[0].args, 2) &&
                    ActivationShape(*kind, left[0].args.operands[0]).fits();
  return fits ? 2 : 0;
}

// Matches the same launches with one more, which keeps codes of the activation's result.
std::size_t is_forward_with_codes(Launches left) {
  return left.size() > 2 && is_forward(left) != 0 && keeps_codes(left[1], left[2]) ? 3 : 0;
}

template <class T>
Work bind_forward_of(Launches launches, Activation kind, Libraries& libraries, Stream stream) {
  const KernelArgs &gate = launches[0].args, &args = launches[1].args;
  const ArgsOf<ops::Linear> op(args);
  LinearShape shape = shape_between(op["x"], op["y"], op.integer("in_dims"));
  const T *weight = data<const T>(args, 1), *bias = data<const T>(args, 2);
  T* const y = data<T>(args, 3);
  shape.bias = bias != nullptr;
  shape.alignment = alignment_of({weight, bias, y});
  const GemmOperands operands =
      linear_operands<T>(data<const T>(args, 0), weight, bias, nullptr, y, args.workspace);
  std::optional<Fp8Factor> kept;
  if (launches.size() > 2) kept = codes_kept_by(launches[2], shape);
  return [of = ActivationShape(kind, gate.operands[0]), kept, x = data<const T>(gate, 0),
          made = data<T>(gate, 1), factors = Fp8Forward(shape, args.workspace),
          product =
              linear_in_fp8<T>(shape, kept_weight(op, shape, true), operands, libraries, stream)](Stream on) {
    activation_to_fp8(of.kind, x, made, of.rows, of.width, factors.x, kept, on);
    product(on);
  };
}

Work bind_forward(Launches launches, Libraries& libraries, Stream stream) {
  return by_value(launches[0].args.operands[0].dtype, [&]<class T>() -> Work {
    if constexpr (is_half<T>)
      return bind_forward_of<T>(launches, *activation_of(launches[0].op.view()), libraries, stream);
    else
      throw_error(ErrorCode::internal, "a product in fp8 of wider values");
  });
}

// ---------------------------------------------------------------- a product and codes for backward

std::size_t is_product_with_codes(Launches left) {
  const bool fits = left.size() >= 2 && is(left[0], "linear") && multiplies_in_fp8(left[0].args) &&
                    size_of(left[0].args.operands[0].dtype) == 2 && keeps_codes(left[0], left[1]);
  return fits ? 2 : 0;
}

Work bind_product_with_codes(Launches launches, Libraries& libraries, Stream stream) {
  const KernelArgs& args = launches[0].args;
  return by_value(args.operands[0].dtype, [&]<class T>() -> Work {
    if constexpr (!is_half<T>) {
      throw_error(ErrorCode::internal, "a product in fp8 of wider values");
    } else {
      const ArgsOf<ops::Linear> op(args);
      LinearShape shape = shape_between(op["x"], op["y"], op.integer("in_dims"));
      const T *x = data<const T>(args, 0), *weight = data<const T>(args, 1), *bias = data<const T>(args, 2);
      T* const y = data<T>(args, 3);
      shape.bias = bias != nullptr;
      shape.alignment = alignment_of({x, weight, bias, y});
      const GemmOperands operands = linear_operands<T>(x, weight, bias, nullptr, y, args.workspace);
      return [=, kept = codes_kept_by(launches[1], shape), factors = Fp8Forward(shape, args.workspace),
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
  const bool fits = kind && of && at(left[0], 2) == of->input->operands[0].data &&
                    all_aligned(left[0].args, 3) && ActivationShape(*kind, left[0].args.operands[1]).fits();
  return fits ? 3 : 0;
}

Work bind_whole_backward(Launches launches, Libraries& libraries, Stream stream) {
  const Gradients of = *gradients_of(launches[1], launches[2]);
  const KernelArgs& gate = launches[0].args;
  return with_types(of, [&]<class T, class S>() -> Work {
    const LinearShape shape = shape_of<T, S>(of);
    const auto prepare =
        [by = ActivationShape(*activation_of_gradient(launches[0].op.view()), gate.operands[1]),
         dy = data<const T>(gate, 0), x = data<const T>(gate, 1), dx = data<T>(gate, 2),
         factors = Fp8Backward(shape, of.input->workspace)](Stream on) {
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
