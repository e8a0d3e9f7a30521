// Implements encode_fp8_squares and turn_fp8_squares: a matrix as codes in squares of fp8.
#include <utility>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/fp8_squares.hpp"

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

Kernel select_turn(const OpShape&) { return turn_fp8_squares; }

Kernel select_encode(const OpShape& s) {
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return encode_fp8_squares<T>; });
}

}  // namespace

std::vector<KernelDef> fp8_squares_kernels() {
  return {{"encode_fp8_squares", select_encode}, {"turn_fp8_squares", select_turn}};
}

}  // namespace prun::cpu::PRUN_ISA
