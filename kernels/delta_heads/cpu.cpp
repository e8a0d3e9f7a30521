// Implements what stands around the gated delta rule: split_mixed and join_mixed, delta_heads and its
// gradient, delta_gates and its gradients.
#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/column_sum.hpp"
#include "cpu/dispatch.hpp"
#include "cpu/lanes.hpp"
#include "cpu/vector_math.hpp"
#include "prun/ops/delta_heads.hpp"

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
  const ArgsOf<ops::SplitMixed> op(args);
  const std::int64_t first = op["y"].inner(1), rest = op["x"].inner(1) - first;
  for_rows(context, op["x"], [=](std::int64_t row) {
    const T* x = op["x"].as<const T>() + row * (first + rest);
    std::copy_n(x, first, op["y"].as<T>() + row * first);
    std::copy_n(x + first, rest, op["gate"].as<T>() + row * rest);
  });
}

template <class T>
void join_mixed(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::JoinMixed> op(args);
  const std::int64_t first = op["y"].inner(1), rest = op["x"].inner(1) - first;
  for_rows(context, op["x"], [=](std::int64_t row) {
    T* x = op["x"].as<T>() + row * (first + rest);
    std::copy_n(op["y"].as<const T>() + row * first, first, x);
    std::copy_n(op["gate"].as<const T>() + row * rest, rest, x + first);
  });
}

// Returns 1 / sqrt(sum(x^2) + eps).
template <class T, class C = Compute<T>>
C shrinks_by(const T* x, std::int64_t n, C eps) {
  return C(1) / std::sqrt(lane_sum<C>(n, [=](std::int64_t i) { return load(x[i]) * load(x[i]); }) + eps);
}

template <class T>
void delta_heads(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::DeltaHeads> op(args);
  using C = Compute<T>;
  const std::int64_t key = op.integer("key_dim"), all = op["x"].inner(1), rest = all - 2 * key;
  const C eps = static_cast<C>(op.real("eps"));
  for_rows(context, op["x"], [=](std::int64_t row) {
    const T* const x = op["x"].as<const T>() + row * all;
    for (int part = 0; part < 2; ++part) {
      const T* __restrict from = x + part * key;
      T* __restrict to = (part == 0 ? op["q"] : op["k"]).as<T>() + row * key;
      const C by = shrinks_by(from, key, eps);
#pragma omp simd
      for (std::int64_t i = 0; i < key; ++i) store(to[i], load(from[i]) * by);
    }
    std::copy_n(x + 2 * key, rest, op["v"].as<T>() + row * rest);
  });
}

// With y = x r, dx = r (dy - y <y, dy>).
template <class T>
void delta_heads_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::DeltaHeadsGrad> op(args);
  using C = Compute<T>;
  const std::int64_t key = op.integer("key_dim"), all = op["x"].inner(1), rest = all - 2 * key;
  const C eps = static_cast<C>(op.real("eps"));
  for_rows(context, op["x"], [=](std::int64_t row) {
    for (int part = 0; part < 2; ++part) {
      const T* __restrict x = op["x"].as<const T>() + row * all + part * key;
      const T* __restrict dy = (part == 0 ? op["dq"] : op["dk"]).as<const T>() + row * key;
      T* __restrict dx = op["dx"].as<T>() + row * all + part * key;
      const C by = shrinks_by(x, key, eps);
      const C along = lane_sum<C>(key, [=](std::int64_t i) { return load(x[i]) * by * load(dy[i]); });
#pragma omp simd
      for (std::int64_t i = 0; i < key; ++i) store(dx[i], by * (load(dy[i]) - load(x[i]) * by * along));
    }
    std::copy_n(op["dv"].as<const T>() + row * rest, rest, op["dx"].as<T>() + row * all + 2 * key);
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
  const ArgsOf<ops::DeltaGates> op(args);
  using C = Compute<T>;
  const std::int64_t values = op["x"].inner(1) / 2, in_row = op["rate"].elements();
  const T *const x = op["x"].as<const T>(), *const rate = op["rate"].as<const T>(),
                 *const bias = op["bias"].as<const T>();
  parallel_ranges(*context.workers, op["g"].elements(), 1024, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const GateAt at = GateAt::of(i, values, in_row);
      op["g"].as<C>()[i] =
          -std::exp(load(rate[at.own])) * softplus<C>(load(x[at.decay]) + load(bias[at.own]));
      op["beta"].as<C>()[i] = sigmoid<C>(load(x[at.share])).value;
    }
  });
}

template <class T>
void delta_gates_input_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::DeltaGatesInputGrad> op(args);
  using C = Compute<T>;
  const std::int64_t values = op["x"].inner(1) / 2, in_row = op["rate"].elements();
  const T *const x = op["x"].as<const T>(), *const rate = op["rate"].as<const T>(),
                 *const bias = op["bias"].as<const T>();
  parallel_ranges(*context.workers, op["dg"].elements(), 1024, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const GateAt at = GateAt::of(i, values, in_row);
      const C slope = sigmoid<C>(load(x[at.decay]) + load(bias[at.own])).value;
      store(op["dx"].as<T>()[at.decay], -op["dg"].as<const C>()[i] * std::exp(load(rate[at.own])) * slope);
      const Sigmoid<C> share = sigmoid<C>(load(x[at.share]));
      store(op["dx"].as<T>()[at.share], op["dbeta"].as<const C>()[i] * share.value * share.rest);
    }
  });
}

template <class T, class Sum>
void delta_gates_weight_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::DeltaGatesWeightGrad> op(args);
  using C = Compute<T>;
  const std::int64_t values = op["x"].inner(1) / 2;
  const RowGroups shape = RowGroups::of(op["dg"], op["rate"].elements());
  const T *const x = op["x"].as<const T>(), *const rate = op["rate"].as<const T>(),
                 *const bias = op["bias"].as<const T>();
  const auto add_row = [&](SumTile<Sum> tile, std::int64_t row, std::int64_t column, std::int64_t n) {
    using Term = Compute<Sum>;
    for (std::int64_t c = 0; c < n; ++c) {
      const GateAt at = GateAt::of(row * shape.width + column + c, values, shape.width);
      const C dg = op["dg"].as<const C>()[row * shape.width + column + c] * -std::exp(load(rate[at.own])),
              moved = load(x[at.decay]) + load(bias[at.own]);
      tile[0][c] += static_cast<Term>(dg * softplus<C>(moved));
      tile[1][c] += static_cast<Term>(dg * sigmoid<C>(moved).value);
    }
  };
  add_column_sums<Sum, 2>(
      *context.workers, shape,
      {ColumnSums<Sum>::of(args, op.at("drate")), ColumnSums<Sum>::of(args, op.at("dbias"))}, add_row);
}

Kernel select_split(const OpShape& shape) {
  const ShapeOf<ops::SplitMixed> s(shape);
  if (!same_type(s, {"x", "y", "gate"})) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return split_mixed<T>; });
}

Kernel select_join(const OpShape& shape) {
  const ShapeOf<ops::JoinMixed> s(shape);
  if (!same_type(s, {"y", "gate", "x"})) return nullptr;
  return choose_value(s["y"].dtype, []<class T>() -> Kernel { return join_mixed<T>; });
}

Kernel select_heads(const OpShape& shape) {
  const ShapeOf<ops::DeltaHeads> s(shape);
  if (!same_type(s, {"x", "q", "k", "v"})) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return delta_heads<T>; });
}

Kernel select_heads_grad(const OpShape& shape) {
  const ShapeOf<ops::DeltaHeadsGrad> s(shape);
  if (!same_type(s, {"dq", "dk", "dv", "x", "dx"})) return nullptr;
  return choose_value(s["dq"].dtype, []<class T>() -> Kernel { return delta_heads_grad<T>; });
}

// Says whether statistics of x are in the type that they have.
bool fit(const OpShape& s, int x, std::initializer_list<int> statistics) {
  for (const int i : statistics)
    if (s.operand[i].dtype != OpShape::statistics(s.operand[x].dtype)) return false;
  return true;
}

Kernel select_gates(const OpShape& shape) {
  const ShapeOf<ops::DeltaGates> s(shape);
  if (!same_type(s, {"x", "rate", "bias"}) || !fit(s, s.at("x"), {3, 4})) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return delta_gates<T>; });
}

Kernel select_gates_input_grad(const OpShape& shape) {
  const ShapeOf<ops::DeltaGatesInputGrad> s(shape);
  if (!same_type(s, {"x", "rate", "bias", "dx"}) || !fit(s, s.at("x"), {0, 1})) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return delta_gates_input_grad<T>; });
}

Kernel select_gates_weight_grad(const OpShape& shape) {
  const ShapeOf<ops::DeltaGatesWeightGrad> s(shape);
  if (!same_type(s, {"x", "rate", "bias"}) || !fit(s, s.at("x"), {0})) return nullptr;
  const OperandShape &drate = s["drate"], &dbias = s["dbias"];
  if (drate.present && !same_type(s, {"drate", "dbias"})) return nullptr;
  return choose_accumulation(s["x"].dtype, (drate.present ? drate : dbias).dtype,
                             []<class T, class Sum>() -> Kernel { return delta_gates_weight_grad<T, Sum>; });
}

}  // namespace

std::vector<KernelDef> delta_heads_kernels();
std::vector<KernelDef> delta_heads_kernels() {
  return {{ops::SplitMixed::kind, select_split},
          {ops::JoinMixed::kind, select_join},
          {ops::DeltaHeads::kind, select_heads},
          {ops::DeltaHeadsGrad::kind, select_heads_grad},
          {ops::DeltaGates::kind, select_gates},
          {ops::DeltaGatesInputGrad::kind, select_gates_input_grad},
          {ops::DeltaGatesWeightGrad::kind, select_gates_weight_grad, nullptr,
           bits_of<ops::DeltaGatesWeightGrad>("drate", "dbias")}};
}

}  // namespace prun::cpu::PRUN_ISA
