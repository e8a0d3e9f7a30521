// Launches encode_fp8_squares, turn_fp8_squares and encode_fp8_square_rows: a matrix as codes in squares of
// fp8.
#include "prun/fp8_squares.hpp"

#include "cuda/fp8_blocks.hpp"
#include "device_op.hpp"

namespace prun::cuda {
namespace {

// The codes lie in the layout that the library takes.
static_assert(Fp8Squares{.rows = 640, .columns = 144}.stride() == fp8_square_stride(640));
static_assert(Fp8Squares{.rows = 656, .columns = 144}.stride() == fp8_square_stride(656));

template <class T>
void encode_fp8_squares(const KernelArgs& args, const KernelContext& context) {
  const Tensor &x = args.operands[0], &codes = args.operands[1];
  const int in = static_cast<int>(args.attrs[0].i);
  const std::int64_t rows = x.outer(in), columns = x.inner(in);
  const bool by_rows = args.attrs[1].i != 0;
  const Fp8Squares squares{by_rows ? columns : rows, by_rows ? rows : columns};
  squares_to_fp8(data<const T>(args, 0), rows, columns, !by_rows,
                 {squares.codes(codes), squares.scales(codes)}, stream_of(context));
}

Kernel select_encode(const OpShape& s) {
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel {
    if constexpr (std::is_same_v<T, double>)
      return nullptr;
    else
      return encode_fp8_squares<T>;
  });
}

void turn(const KernelArgs& args, const KernelContext& context) {
  const Tensor &from = args.operands[0], &to = args.operands[1];
  const std::int64_t columns = from.inner(static_cast<int>(args.attrs[0].i)),
                     rows = to.inner(static_cast<int>(args.attrs[1].i));
  const Fp8Squares by_rows{columns, rows}, by_columns{rows, columns};
  turn_fp8_squares({by_rows.codes(from), by_rows.scales(from)}, rows, columns,
                   {by_columns.codes(to), by_columns.scales(to)}, stream_of(context));
}

template <class T>
void encode_fp8_square_rows(const KernelArgs& args, const KernelContext& context) {
  const Tensor& x = args.operands[0];
  square_rows_to_fp8(data<const T>(args, 0), x.outer(1), x.inner(1), data<std::uint8_t>(args, 1),
                     stream_of(context));
}

Kernel select_square_rows(const OpShape& s) {
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel {
    if constexpr (std::is_same_v<T, double>)
      return nullptr;
    else
      return encode_fp8_square_rows<T>;
  });
}

Kernel select_turn(const OpShape&) { return turn; }

}  // namespace

std::vector<DeviceOp> fp8_squares_ops(const OpChoices&) {
  return {{{"encode_fp8_squares", select_encode}},
          {{"turn_fp8_squares", select_turn}},
          {{"encode_fp8_square_rows", select_square_rows}}};
}

}  // namespace prun::cuda
