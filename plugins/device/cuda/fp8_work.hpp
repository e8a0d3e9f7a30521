// Products in fp8 as work: both factors become codes in the launch's workspace, and are multiplied there.
#pragma once

#include "cuda/fp8_blocks.hpp"
#include "linear_work.hpp"

namespace prun::cuda {

// Whether a launch of linear or one of its gradients multiplies so.
inline bool multiplies_in_fp8(const KernelArgs& args) { return args.attrs[1].i != 0; }

// The workspace of a product of factors [rows, summed] in row blocks and [columns, summed] in squares.
struct Fp8Extents {
  std::int64_t rows, columns, summed;
};

class Fp8Workspace {
 public:
  Fp8Workspace(const Fp8Extents& e, void* workspace) {
    auto* next = static_cast<std::uint8_t*>(workspace) + gemm_workspace;
    const auto take = [&](std::int64_t bytes) {
      std::uint8_t* const piece = next;
      next += (bytes + 255) / 256 * 256;
      return piece;
    };
    const auto take_scales = [&](std::int64_t count) { return reinterpret_cast<float*>(take(4 * count)); };
    a.codes = take(e.rows * e.summed);
    b.codes = take(e.columns * e.summed);
    a.scales = take_scales(fp8_row_scales(e.rows, e.summed));
    b.scales = take_scales(fp8_square_scales(e.columns, e.summed));
    bytes_ = next - static_cast<std::uint8_t*>(workspace);
  }
  static std::int64_t bytes(const Fp8Extents& e) { return Fp8Workspace(e, nullptr).bytes_; }

  Fp8Factor a, b;

 private:
  std::int64_t bytes_;
};

// `prepare` writes the factors. Of the product, m, n, k and what goes for fp8 are set here.
template <class Prepare>
Work fp8_work(const Fp8Extents& e, Product product, GemmOperands operands, const Fp8Workspace& factors,
              Prepare prepare, Libraries& libraries, Stream stream) {
  product.m = e.rows, product.n = e.columns, product.k = e.summed;
  product.transpose_a = false, product.transpose_b = true, product.fp8 = true;
  operands.a = factors.a.codes, operands.b = factors.b.codes;
  operands.a_scales = factors.a.scales, operands.b_scales = factors.b.scales;
  prepare(stream);
  try {
    return [prepare, product = product_work(product, operands, libraries, stream)](Stream on) {
      prepare(on);
      product(on);
    };
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    throw_error(
        ErrorCode::unsupported, error.what(),
        ": products in blocks of fp8 are of Hopper (compute capability 9.0); leave precision.products out");
  }
}

}  // namespace prun::cuda
