// Implements encode_fp8_squares, turn_fp8_squares and encode_fp8_square_rows: a matrix as codes in squares of
// fp8.
#include <utility>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/fp8_squares.hpp"
#include "prun/block_codes.hpp"
#include "prun/ops/fp8_squares.hpp"

namespace prun::cpu::PRUN_ISA {

std::vector<KernelDef> fp8_squares_kernels();

namespace {

template <class T>
void encode_fp8_squares(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::EncodeFp8Squares> op(args);
  const Tensor &x = op["x"], &codes = op["codes"];
  const int in = static_cast<int>(op.integer("in_dims"));
  const bool by_rows = op.integer("by_rows") != 0;
  Fp8Squares squares{x.outer(in), x.inner(in)};
  if (by_rows) std::swap(squares.rows, squares.columns);
  encode_squares(x.as<const T>(), squares, by_rows, codes, *context.workers);
}

void turn_fp8_squares(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::TurnFp8Squares> op(args);
  const Tensor &from = op["rows"], &to = op["columns"];
  const std::int64_t columns = from.inner(static_cast<int>(op.integer("along_rows"))),
                     rows = to.inner(static_cast<int>(op.integer("along_columns")));
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
  const ArgsOf<ops::EncodeFp8SquareRows> op(args);
  const Tensor& x = op["x"];
  const std::int64_t rows = x.outer(1), columns = x.inner(1), across = columns / fp8_block;
  const T* const numbers = x.as<const T>();
  auto* const codes = op["codes"].as<std::uint8_t>();
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

Kernel select_square_rows(const OpShape& shape) {
  const ShapeOf<ops::EncodeFp8SquareRows> s(shape);
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return encode_fp8_square_rows<T>; });
}

Kernel select_turn(const OpShape&) { return turn_fp8_squares; }

Kernel select_encode(const OpShape& shape) {
  const ShapeOf<ops::EncodeFp8Squares> s(shape);
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return encode_fp8_squares<T>; });
}

}  // namespace

std::vector<KernelDef> fp8_squares_kernels() {
  return {{ops::EncodeFp8Squares::kind, select_encode},
          {ops::TurnFp8Squares::kind, select_turn},
          {ops::EncodeFp8SquareRows::kind, select_square_rows}};
}

}  // namespace prun::cpu::PRUN_ISA
