// Launches encode_fp8_squares, turn_fp8_squares and encode_fp8_square_rows: a matrix as codes in squares of
// fp8.
#include "prun/fp8_squares.hpp"

#include "cuda/fp8_blocks.hpp"
#include "device_op.hpp"
#include "prun/ops/fp8_squares.hpp"

namespace prun::cuda {
namespace {

// The codes lie in the layout that the library takes.
static_assert(Fp8Squares{.rows = 640, .columns = 144}.stride() == fp8_square_stride(640));
static_assert(Fp8Squares{.rows = 656, .columns = 144}.stride() == fp8_square_stride(656));

template <class T>
void encode_fp8_squares(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::EncodeFp8Squares> op(args);
  const Tensor &x = op["x"], &codes = op["codes"];
  const int in = static_cast<int>(op.integer("in_dims"));
  const std::int64_t rows = x.outer(in), columns = x.inner(in);
  const bool by_rows = op.integer("by_rows") != 0;
  const Fp8Squares squares{by_rows ? columns : rows, by_rows ? rows : columns};
  squares_to_fp8(op["x"].as<const T>(), rows, columns, !by_rows,
                 {squares.codes(codes), squares.scales(codes)}, stream_of(context));
}

Kernel select_encode(const OpShape& shape) {
  const ShapeOf<ops::EncodeFp8Squares> s(shape);
  return by_value(s["x"].dtype, []<class T>() -> Kernel {
    if constexpr (std::is_same_v<T, double>)
      return nullptr;
    else
      return encode_fp8_squares<T>;
  });
}

void turn(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::TurnFp8Squares> op(args);
  const Tensor &from = op["rows"], &to = op["columns"];
  const std::int64_t columns = from.inner(static_cast<int>(op.integer("along_rows"))),
                     rows = to.inner(static_cast<int>(op.integer("along_columns")));
  const Fp8Squares by_rows{columns, rows}, by_columns{rows, columns};
  turn_fp8_squares({by_rows.codes(from), by_rows.scales(from)}, rows, columns,
                   {by_columns.codes(to), by_columns.scales(to)}, stream_of(context));
}

template <class T>
void encode_fp8_square_rows(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::EncodeFp8SquareRows> op(args);
  const Tensor& x = op["x"];
  square_rows_to_fp8(op["x"].as<const T>(), x.outer(1), x.inner(1), op["codes"].as<std::uint8_t>(),
                     stream_of(context));
}

Kernel select_square_rows(const OpShape& shape) {
  const ShapeOf<ops::EncodeFp8SquareRows> s(shape);
  return by_value(s["x"].dtype, []<class T>() -> Kernel {
    if constexpr (std::is_same_v<T, double>)
      return nullptr;
    else
      return encode_fp8_square_rows<T>;
  });
}

Kernel select_turn(const OpShape&) { return turn; }

}  // namespace

std::vector<DeviceOp> fp8_squares_ops(const OpChoices&) {
  return {{{ops::EncodeFp8Squares::kind, select_encode}},
          {{ops::TurnFp8Squares::kind, select_turn}},
          {{ops::EncodeFp8SquareRows::kind, select_square_rows}}};
}

}  // namespace prun::cuda
