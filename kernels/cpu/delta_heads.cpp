// Implements what stands around the gated delta rule: split_mixed and join_mixed, delta_heads and its
// gradient, delta_gates and its gradients.
#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/column_sum.hpp"
#include "cpu/dispatch.hpp"
#include "cpu/lanes.hpp"
#include "cpu/vector_math.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

// Calls body(row) for each of the rows of x, of its last dimension.
template <class Body>
void for_rows(const KernelContext& context, const Tensor& x, const Body& body) {
  const std::int64_t grain = std::max<std::int64_t>(1, 4096 / x.inner(1));
  parallel_ranges(*context.workers, x.outer(1), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) body(row);
  });
}

template <class T>
void split_mixed(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  const std::int64_t first = o[1].inner(1), rest = o[0].inner(1) - first;
  for_rows(context, o[0], [=](std::int64_t row) {
    const T* x = o[0].as<const T>() + row * (first + rest);
    std::copy_n(x, first, o[1].as<T>() + row * first);
    std::copy_n(x + first, rest, o[2].as<T>() + row * rest);
  });
}

template <class T>
void join_mixed(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  const std::int64_t first = o[0].inner(1), rest = o[2].inner(1) - first;
  for_rows(context, o[2], [=](std::int64_t row) {
    T* x = o[2].as<T>() + row * (first + rest);
    std::copy_n(o[0].as<const T>() + row * first, first, x);
    std::copy_n(o[1].as<const T>() + row * rest, rest, x + first);
  });
}

// Returns 1 / sqrt(sum(x^2) + eps).
template <class T, class C = Compute<T>>
C shrinks_by(const T* x, std::int64_t n, C eps) {
  return C(1) / std::sqrt(lane_sum<C>(n, [=](std::int64_t i) { return load(x[i]) * load(x[i]); }) + eps);
}

template <class T>
void delta_heads(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const Tensor* o = args.operands;
  const std::int64_t key = args.attrs[0].i, all = o[0].inner(1), rest = all - 2 * key;
  const C eps = static_cast<C>(args.attrs[2].f);
  for_rows(context, o[0], [=](std::int64_t row) {
    const T* const x = o[0].as<const T>() + row * all;
    for (int part = 0; part < 2; ++part) {
      const T* __restrict from = x + part * key;
      T* __restrict to = o[1 + part].as<T>() + row * key;
      const C by = shrinks_by(from, key, eps);
#pragma omp simd
      for (std::int64_t i = 0; i < key; ++i) store(to[i], load(from[i]) * by);
    }
    std::copy_n(x + 2 * key, rest, o[3].as<T>() + row * rest);
  });
}

// With y = x r, dx = r (dy - y <y, dy>).
template <class T>
void delta_heads_grad(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const Tensor* o = args.operands;
  const std::int64_t key = args.attrs[0].i, all = o[3].inner(1), rest = all - 2 * key;
  const C eps = static_cast<C>(args.attrs[2].f);
  for_rows(context, o[3], [=](std::int64_t row) {
    for (int part = 0; part < 2; ++part) {
      const T* __restrict x = o[3].as<const T>() + row * all + part * key;
      const T* __restrict dy = o[part].as<const T>() + row * key;
      T* __restrict dx = o[4].as<T>() + row * all + part * key;
      const C by = shrinks_by(x, key, eps);
      const C along = lane_sum<C>(key, [=](std::int64_t i) { return load(x[i]) * by * load(dy[i]); });
#pragma omp simd
      for (std::int64_t i = 0; i < key; ++i) store(dx[i], by * (load(dy[i]) - load(x[i]) * by * along));
    }
    std::copy_n(o[2].as<const T>() + row * rest, rest, o[4].as<T>() + row * all + 2 * key);
  });
}

template <class C>
C softplus(C x) {
  return std::max(x, C(0)) + std::log1p(std::exp(-std::abs(x)));
}

// Names the numbers of a value head: `share` and `decay` of x, and its place in the vectors.
struct GateAt {
  std::int64_t share, decay, own;

  // Returns that of element i of [rows, heads * values], of which `in_row` are in a row.
  static GateAt of(std::int64_t i, std::int64_t values, std::int64_t in_row) {
    const std::int64_t head = i / values, value = i % values;
    return {head * 2 * values + value, (head * 2 + 1) * values + value, i % in_row};
  }
};

template <class T>
void delta_gates(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const Tensor* o = args.operands;
  const std::int64_t values = o[0].inner(1) / 2, in_row = o[1].elements();
  const T *const x = o[0].as<const T>(), *const rate = o[1].as<const T>(), *const bias = o[2].as<const T>();
  parallel_ranges(*context.workers, o[3].elements(), 1024, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const GateAt at = GateAt::of(i, values, in_row);
      o[3].as<C>()[i] = -std::exp(load(rate[at.own])) * softplus<C>(load(x[at.decay]) + load(bias[at.own]));
      o[4].as<C>()[i] = sigmoid<C>(load(x[at.share])).value;
    }
  });
}

template <class T>
void delta_gates_input_grad(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const Tensor* o = args.operands;
  const std::int64_t values = o[2].inner(1) / 2, in_row = o[3].elements();
  const T *const x = o[2].as<const T>(), *const rate = o[3].as<const T>(), *const bias = o[4].as<const T>();
  parallel_ranges(*context.workers, o[0].elements(), 1024, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const GateAt at = GateAt::of(i, values, in_row);
      const C slope = sigmoid<C>(load(x[at.decay]) + load(bias[at.own])).value;
      store(o[5].as<T>()[at.decay], -o[0].as<const C>()[i] * std::exp(load(rate[at.own])) * slope);
      const Sigmoid<C> share = sigmoid<C>(load(x[at.share]));
      store(o[5].as<T>()[at.share], o[1].as<const C>()[i] * share.value * share.rest);
    }
  });
}

template <class T, class Sum>
void delta_gates_weight_grad(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const Tensor* o = args.operands;
  const std::int64_t values = o[1].inner(1) / 2;
  const RowGroups shape = RowGroups::of(o[0], o[2].elements());
  const T *const x = o[1].as<const T>(), *const rate = o[2].as<const T>(), *const bias = o[3].as<const T>();
  const auto add_row = [&](SumTile<Sum> tile, std::int64_t row, std::int64_t column, std::int64_t n) {
    using Term = Compute<Sum>;
    for (std::int64_t c = 0; c < n; ++c) {
      const GateAt at = GateAt::of(row * shape.width + column + c, values, shape.width);
      const C dg = o[0].as<const C>()[row * shape.width + column + c] * -std::exp(load(rate[at.own])),
              moved = load(x[at.decay]) + load(bias[at.own]);
      tile[0][c] += static_cast<Term>(dg * softplus<C>(moved));
      tile[1][c] += static_cast<Term>(dg * sigmoid<C>(moved).value);
    }
  };
  add_column_sums<Sum, 2>(*context.workers, shape,
                          {ColumnSums<Sum>::of(args, 4), ColumnSums<Sum>::of(args, 5)}, add_row);
}

Kernel select_split(const OpShape& s) {
  if (!same_type(s, {0, 1, 2})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return split_mixed<T>; });
}

Kernel select_join(const OpShape& s) {
  if (!same_type(s, {0, 1, 2})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return join_mixed<T>; });
}

Kernel select_heads(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 3})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return delta_heads<T>; });
}

Kernel select_heads_grad(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 3, 4})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return delta_heads_grad<T>; });
}

// Says whether statistics of x are in the type that they have.
bool fit(const OpShape& s, int x, std::initializer_list<int> statistics) {
  for (const int i : statistics)
    if (s.operand[i].dtype != OpShape::statistics(s.operand[x].dtype)) return false;
  return true;
}

Kernel select_gates(const OpShape& s) {
  if (!same_type(s, {0, 1, 2}) || !fit(s, 0, {3, 4})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return delta_gates<T>; });
}

Kernel select_gates_input_grad(const OpShape& s) {
  if (!same_type(s, {2, 3, 4, 5}) || !fit(s, 2, {0, 1})) return nullptr;
  return choose_value(s.operand[2].dtype, []<class T>() -> Kernel { return delta_gates_input_grad<T>; });
}

Kernel select_gates_weight_grad(const OpShape& s) {
  if (!same_type(s, {1, 2, 3}) || !fit(s, 1, {0})) return nullptr;
  const OperandShape &drate = s.operand[4], &dbias = s.operand[5];
  if (drate.present && !same_type(s, {4, 5})) return nullptr;
  return choose_accumulation(s.operand[1].dtype, (drate.present ? drate : dbias).dtype,
                             []<class T, class Sum>() -> Kernel { return delta_gates_weight_grad<T, Sum>; });
}

}  // namespace

std::vector<KernelDef> delta_heads_kernels();
std::vector<KernelDef> delta_heads_kernels() {
  return {{"split_mixed", select_split},
          {"join_mixed", select_join},
          {"delta_heads", select_heads},
          {"delta_heads_grad", select_heads_grad},
          {"delta_gates", select_gates},
          {"delta_gates_input_grad", select_gates_input_grad},
          {"delta_gates_weight_grad", select_gates_weight_grad, nullptr, 1u << 4 | 1u << 5}};
}

}  // namespace prun::cpu::PRUN_ISA
