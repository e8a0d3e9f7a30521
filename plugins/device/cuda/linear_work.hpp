// Holds what linear, its gradients and the ops fused with them share.
#pragma once

#include "device_op.hpp"
#include "libraries.hpp"
#include "linear/cuda.hpp"

namespace prun::cuda {

// Returns the shape for the weight and a value [.., in].
inline LinearShape linear_shape(const Tensor& w, const Tensor& x, std::int64_t in_dims) {
  LinearShape shape{};
  shape.in = w.inner(static_cast<int>(in_dims));
  shape.out = w.elements() / shape.in;
  shape.rows = x.elements() / shape.in;
  return shape;
}

// Makes work of a product, with the best algorithm known.
inline Work product_work(const Product& product, const GemmOperands& operands, Libraries& libraries,
                         Stream stream) {
  const auto plan = libraries.plan(product, operands, stream);
  return [&gemm = libraries.gemm(), plan, operands](Stream on) { gemm.run(*plan, operands, on); };
}

// Makes a product with an epilogue where the library has it and that is faster than separate ops, which are
// made where they are needed.
inline Work together_or_apart(const Product& product, const GemmOperands& operands,
                              const std::function<Work()>& apart, Libraries& libraries, Stream stream) {
  try {
    const auto together = [&] { return product_work(product, operands, libraries, stream); };
    return libraries.faster(product, together, apart, stream);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    return apart();
  }
}

}  // namespace prun::cuda
