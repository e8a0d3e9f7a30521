// Implements add_parts, take_part, pair and half, for stretches of one dimension. Each element is rounded
// once, so the bits are the same wherever rows are cut.
#include <algorithm>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/values.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

constexpr std::int64_t grain = 4096;  // counts elements

// Describes a value as rows of a whole dimension and all behind it, and how many elements one of the
// dimension has.
struct PartRows {
  std::int64_t rows, row, unit;

  PartRows(const Tensor& x, std::int64_t dim) : rows(1), row(1), unit(1) {
    for (std::int64_t d = 0; d < x.rank; ++d) (d < dim ? rows : row) *= x.dim[d];
    unit = row / std::max<std::int64_t>(1, x.dim[dim]);
  }
  std::int64_t rows_each() const { return std::max<std::int64_t>(1, grain / std::max<std::int64_t>(1, row)); }
};

template <class T>
void add_row(T* __restrict y, const T* __restrict b, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) store(y[i], load(y[i]) + load(b[i]));
}

template <class T>
void add_parts(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  const PartRows whole(o[0], args.attrs[0].i);
  parallel_ranges(*context.workers, whole.rows, whole.rows_each(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      T* const y = o[4].as<T>() + r * whole.row;
      if (const T* const a = o[0].as<const T>() + r * whole.row; a != y) std::copy_n(a, whole.row, y);
      for (int i = 1; i <= 3; ++i) {
        if (!o[i].data) continue;
        const std::int64_t first = args.attrs[2 * i - 1].i, n = (args.attrs[2 * i].i - first) * whole.unit;
        add_row(y + first * whole.unit, o[i].as<const T>() + r * n, n);
      }
    }
  });
}

// Copies elements [begin, begin + n) of each row.
template <class T>
void copy_parts(const KernelContext& context, const PartRows& whole, std::int64_t begin, std::int64_t n,
                const Tensor& x, const Tensor& y) {
  parallel_ranges(*context.workers, whole.rows, whole.rows_each(),
                  [&](std::int64_t first, std::int64_t last) {
                    for (std::int64_t r = first; r < last; ++r)
                      std::copy_n(x.as<const T>() + r * whole.row + begin, n, y.as<T>() + r * n);
                  });
}

template <class T>
void take_part(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  const PartRows whole(o[0], args.attrs[0].i);
  const std::int64_t first = args.attrs[1].i, n = (args.attrs[2].i - first) * whole.unit;
  copy_parts<T>(context, whole, first * whole.unit, n, o[0], o[1]);
}

template <class T>
void pair(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  const PartRows whole(o[2], o[2].rank - 1);
  const std::int64_t n = whole.row / 2;
  parallel_ranges(*context.workers, whole.rows, whole.rows_each(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      for (int i = 0; i < 2; ++i)
        std::copy_n(o[i].as<const T>() + r * n, n, o[2].as<T>() + r * whole.row + i * n);
  });
}

template <class T>
void half(const KernelArgs& args, const KernelContext& context) {
  const PartRows whole(args.operands[0], args.operands[0].rank - 1);
  const std::int64_t n = whole.row / 2;
  copy_parts<T>(context, whole, args.attrs[0].i * n, n, args.operands[0], args.operands[1]);
}

Kernel select_add_parts(const OpShape& s) {
  for (int i = 1; i <= 3; ++i)
    if (s.operand[i].present && !same_type(s, {0, i})) return nullptr;
  if (!same_type(s, {0, 4})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return add_parts<T>; });
}

Kernel select_take_part(const OpShape& s) {
  if (!same_type(s, {0, 1})) return nullptr;
  if (s.operand[0].dtype == DType::i32) return take_part<std::int32_t>;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return take_part<T>; });
}

Kernel select_pair(const OpShape& s) {
  if (!same_type(s, {0, 1, 2})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return pair<T>; });
}

Kernel select_half(const OpShape& s) {
  if (!same_type(s, {0, 1})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return half<T>; });
}

}  // namespace

std::vector<KernelDef> parts_kernels();
std::vector<KernelDef> parts_kernels() {
  return {{"add_parts", select_add_parts},
          {"take_part", select_take_part},
          {"pair", select_pair},
          {"half", select_half}};
}

}  // namespace prun::cpu::PRUN_ISA
