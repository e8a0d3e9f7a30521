// Implements encode_fp8_squares, turn_fp8_squares and encode_fp8_square_rows: a matrix as codes in squares of
// fp8.
#include <utility>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/fp8_squares.hpp"
#include "prun/block_codes.hpp"

namespace prun::cpu::PRUN_ISA {

std::vector<KernelDef> fp8_squares_kernels();

namespace {

template <class T>
void encode_fp8_squares(const KernelArgs& args, const KernelContext& context) {
  const Tensor &x = args.operands[0], &codes = args.operands[1];
  const int in = static_cast<int>(args.attrs[0].i);
  const bool by_rows = args.attrs[1].i != 0;
  Fp8Squares squares{x.outer(in), x.inner(in)};
  if (by_rows) std::swap(squares.rows, squares.columns);
  encode_squares(x.as<const T>(), squares, by_rows, codes, *context.workers);
}

void turn_fp8_squares(const KernelArgs& args, const KernelContext& context) {
  const Tensor &from = args.operands[0], &to = args.operands[1];
  const std::int64_t columns = from.inner(static_cast<int>(args.attrs[0].i)),
                     rows = to.inner(static_cast<int>(args.attrs[1].i));
  turn_squares({columns, rows}, from, to, *context.workers);
}

// Writes one block: its scale, and behind it the codes; those of a block that is not finite are zero.
template <class T, class C>
void write_block(const T* x, std::uint32_t scale, C inverse, std::uint8_t* to) {
  std::memcpy(to, &scale, sizeof scale);
  const bool finite = std::isfinite(std::bit_cast<float>(scale));
  for (std::int64_t j = 0; j < fp8_block; ++j)
    to[sizeof scale + static_cast<std::size_t>(j)] =
        finite ? static_cast<std::uint8_t>(e4m3_code(static_cast<float>(round_to_e4m3(load(x[j]) * inverse))))
               : std::uint8_t{0};
}

template <class T>
void encode_fp8_square_rows(const KernelArgs& args, const KernelContext& context) {
  const Tensor& x = args.operands[0];
  const std::int64_t rows = x.outer(1), columns = x.inner(1), across = columns / fp8_block;
  const T* const numbers = x.as<const T>();
  auto* const codes = args.operands[1].as<std::uint8_t>();
  each_tile(numbers, rows, columns, *context.workers,
            [&](const T* tile, std::int64_t tall, std::int64_t wide) {
              const TileScales<Fp8Blocks::squares, T> scales(tile, tall, wide, columns);
              const std::int64_t first =
                  (tile - numbers) / columns * across + (tile - numbers) % columns / fp8_block;
              for (std::int64_t i = 0; i < tall; ++i)
                write_block(tile + i * columns, scales.bits(i, 0), scales.inverse(i, 0),
                            codes + (first + i * across) * code_block_bytes(8));
            });
}

Kernel select_square_rows(const OpShape& s) {
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return encode_fp8_square_rows<T>; });
}

Kernel select_turn(const OpShape&) { return turn_fp8_squares; }

Kernel select_encode(const OpShape& s) {
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return encode_fp8_squares<T>; });
}

}  // namespace

std::vector<KernelDef> fp8_squares_kernels() {
  return {{"encode_fp8_squares", select_encode},
          {"turn_fp8_squares", select_turn},
          {"encode_fp8_square_rows", select_square_rows}};
}

}  // namespace prun::cpu::PRUN_ISA
