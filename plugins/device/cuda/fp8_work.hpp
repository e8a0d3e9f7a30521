// Makes work of products in fp8: both factors become codes in the launch's workspace, and are multiplied
// there.
#pragma once

#include <optional>

#include "cuda/fp8_blocks.hpp"
#include "linear_work.hpp"
#include "prun/fp8_squares.hpp"
#include "prun/ops/linear.hpp"

namespace prun::cuda {

// Says whether a launch of linear or one of its gradients multiplies in fp8.
inline bool multiplies_in_fp8(const KernelArgs& args) {
  return multiplies_in_fp8(args, attr_of<ops::Linear>("fp8"));
}

// Says whether a launch of any op multiplies in fp8.
inline bool multiplies_in_fp8(const Launch& launch) {
  const std::string_view op = launch.op.view();
  const bool may = op == "linear" || op == "linear_input_grad" || op == "linear_weight_grad";
  return may && multiplies_in_fp8(launch.args);
}

// Returns the shape of linear or of its input's gradient, by a value [.., in] and one [.., out]: the weight
// may be codes.
inline LinearShape shape_between(const Tensor& x, const Tensor& other, std::int64_t in_dims) {
  LinearShape shape{};
  shape.in = x.inner(static_cast<int>(in_dims));
  shape.rows = x.elements() / shape.in;
  shape.out = other.elements() / shape.rows;
  return shape;
}

// Returns the weight of either where codes of it are kept, by rows for linear.
template <class Op>
std::optional<Fp8Factor> kept_weight(const ArgsOf<Op>& op, const LinearShape& s, bool by_rows) {
  if (op.integer("fp8") != 2) return {};
  const Fp8Squares squares{by_rows ? s.in : s.out, by_rows ? s.out : s.in};
  return Fp8Factor{squares.codes(op["weight"]), squares.scales(op["weight"])};
}

// Returns the shape of a weight's gradient: rows are dy's, since x may be codes.
inline LinearShape weight_grad_shape(const ArgsOf<ops::LinearWeightGrad>& op) {
  const Tensor& w = op["dweight"];
  LinearShape shape{};
  shape.in = w.inner(static_cast<int>(op.integer("in_dims")));
  shape.out = w.elements() / shape.in;
  shape.rows = op["dy"].elements() / shape.out;
  return shape;
}

// Returns x of a weight's gradient where forward has kept its codes.
inline std::optional<Fp8Factor> kept_codes(const ArgsOf<ops::LinearWeightGrad>& op, const LinearShape& s) {
  if (op.integer("fp8") != 2) return {};
  const Fp8Squares squares{s.rows, s.in};
  return Fp8Factor{squares.codes(op["x"]), squares.scales(op["x"])};
}

// Cuts a workspace into factors, behind what the library is given.
class Fp8Workspace {
 public:
  explicit Fp8Workspace(void* workspace)
      : begin_(static_cast<std::uint8_t*>(workspace)), next_(begin_ + gemm_workspace) {}

  // Takes a factor of `rows` rows along the dimension that is summed.
  Fp8Factor rows(std::int64_t rows, std::int64_t summed) {
    return take(rows * summed, fp8_row_scales(rows, summed));
  }
  Fp8Factor squares(std::int64_t rows, std::int64_t summed) {
    return take(rows * summed, fp8_square_scales(rows, summed));
  }
  std::int64_t bytes() const { return next_ - begin_; }

 private:
  Fp8Factor take(std::int64_t codes, std::int64_t scales) {
    return {take(codes), reinterpret_cast<float*>(take(4 * scales))};
  }
  std::uint8_t* take(std::int64_t bytes) {
    std::uint8_t* const piece = next_;
    next_ += (bytes + 255) / 256 * 256;
    return piece;
  }

  std::uint8_t *begin_, *next_;
};

// States what linear needs.
struct Fp8Forward {
  Fp8Factor x, weight;
  std::int64_t bytes;

  Fp8Forward(const LinearShape& s, void* workspace) {
    Fp8Workspace cut(workspace);
    x = cut.rows(s.rows, s.in);
    weight = cut.squares(s.out, s.in);
    bytes = cut.bytes();
  }
};

// States what its two gradients need, one after the other: dy for each of them, and in one place the other
// factor of either gradient.
struct Fp8Backward {
  Fp8Factor dy, dy_columns, weight, x;
  std::int64_t bytes;

  Fp8Backward(const LinearShape& s, void* workspace) {
    Fp8Workspace cut(workspace);
    dy = cut.rows(s.rows, s.out);
    dy_columns = cut.rows(s.out, s.rows);
    Fp8Workspace other = cut;
    weight = cut.squares(s.in, s.out);
    x = other.squares(s.in, s.rows);
    bytes = std::max(cut.bytes(), other.bytes());
  }
};

// Multiplies two factors, a's rows by b's squares, which are in the operands' workspace. It sets m, n and k
// of the product, and what fp8 needs.
inline Work fp8_product(Product product, std::int64_t rows, std::int64_t columns, std::int64_t summed,
                        const Fp8Factor& a, const Fp8Factor& b, GemmOperands operands, Libraries& libraries,
                        Stream stream) {
  product.m = rows, product.n = columns, product.k = summed;
  product.transpose_a = false, product.transpose_b = true, product.fp8 = true;
  operands.a = a.codes, operands.a_scales = a.scales;
  operands.b = b.codes, operands.b_scales = b.scales;
  try {
    return product_work(product, operands, libraries, stream);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    throw_error(ErrorCode::bad_input, error.what(),
                ": products in blocks of fp8 are of Hopper (compute capability 9.0); leave "
                "strategy fp8 out");
  }
}

// Computes y, where x has become codes, and the weight as well where these are `kept`.
template <class T>
Work linear_in_fp8(const LinearShape& s, const std::optional<Fp8Factor>& kept, const GemmOperands& operands,
                   Libraries& libraries, Stream stream) {
  const T* const weight = static_cast<const T*>(operands.b);
  const Fp8Forward factors(s, operands.workspace);
  if (kept)
    return fp8_product(linear_product<T>(s), s.rows, s.out, s.in, factors.x, *kept, operands, libraries,
                       stream);
  return [=, product = fp8_product(linear_product<T>(s), s.rows, s.out, s.in, factors.x, factors.weight,
                                   operands, libraries, stream)](Stream on) {
    squares_to_fp8(weight, s.out, s.in, false, factors.weight, on);
    product(on);
  };
}

// Computes dx, where dy has become codes, and the weight as well where these are `kept`.
template <class T>
Work input_grad_in_fp8(const LinearShape& s, const std::optional<Fp8Factor>& kept,
                       const GemmOperands& operands, Libraries& libraries, Stream stream) {
  const T* const weight = static_cast<const T*>(operands.b);
  const Fp8Backward factors(s, operands.workspace);
  if (kept)
    return fp8_product(linear_input_grad_product<T>(s), s.rows, s.in, s.out, factors.dy, *kept, operands,
                       libraries, stream);
  return [=, product = fp8_product(linear_input_grad_product<T>(s), s.rows, s.in, s.out, factors.dy,
                                   factors.weight, operands, libraries, stream)](Stream on) {
    squares_to_fp8(weight, s.out, s.in, true, factors.weight, on);
    product(on);
  };
}

// Computes dweight, where dy has become codes, and x as well where these are `kept`.
template <class T, class S>
Work weight_grad_in_fp8(const LinearShape& s, const std::optional<Fp8Factor>& kept,
                        const GemmOperands& operands, Libraries& libraries, Stream stream) {
  const T* const x = static_cast<const T*>(operands.b);
  const Fp8Backward factors(s, operands.workspace);
  if (kept)
    return fp8_product(linear_weight_grad_product<T, S>(s), s.out, s.in, s.rows, factors.dy_columns, *kept,
                       operands, libraries, stream);
  return [=, product = fp8_product(linear_weight_grad_product<T, S>(s), s.out, s.in, s.rows,
                                   factors.dy_columns, factors.x, operands, libraries, stream)](Stream on) {
    squares_to_fp8(x, s.rows, s.in, true, factors.x, on);
    product(on);
  };
}

}  // namespace prun::cuda
