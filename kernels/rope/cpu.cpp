// Implements rope, which takes queries, keys and values out of their packed projection, the first two turned
// by their position and scaled, and rope_grad, which turns their gradients back and packs them.
#include <algorithm>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/turns.hpp"
#include "rope_attrs.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

struct Heads {
  std::int64_t width;
  RopePairs pairs;
};

// Pair i is made of channels i * step and i * step + apart.
template <class T, class C>
void rotate_pairs(const T* __restrict x, T* __restrict y, const TimeSlots<C>& turns, std::int64_t pairs,
                  std::int64_t step, std::int64_t apart, C scale) {
  const C* __restrict cosine = turns.cosine, * __restrict sine = turns.sine;
#pragma omp simd
  for (std::int64_t i = 0; i < pairs; ++i) {
    const C first = load(x[i * step]), second = load(x[i * step + apart]);
    store(y[i * step], (first * cosine[i] - second * sine[i]) * scale);
    store(y[i * step + apart], (second * cosine[i] + first * sine[i]) * scale);
  }
}

// Turns a head. Channels behind the pairs are only multiplied.
template <class T, class C>
void rotate(const T* __restrict x, T* __restrict y, const TimeSlots<C>& turns, const Heads& heads, C scale) {
  const std::int64_t pairs = heads.pairs.pairs;
  if (heads.pairs.interleaved)
    rotate_pairs(x, y, turns, pairs, 2, 1, scale * turns.turned_scale);
  else
    rotate_pairs(x, y, turns, pairs, 1, pairs, scale * turns.turned_scale);
#pragma omp simd
  for (std::int64_t i = 2 * pairs; i < heads.width; ++i) store(y[i], load(x[i]) * scale);
}

// Points at one position's heads, together and apart: in a group's slots the queries begin at x, key and
// value at `last`, and the next group's a fixed number of elements further.
template <class T>
struct Position {
  T *x, *last, *q, *k, *v;
  std::int64_t group, last_group;
};

template <class T, class C>
void turn_apart(const Position<T>& at, const TimeSlots<C>& turns, const Tensor& q, const Heads& heads) {
  const std::int64_t width = heads.width;
  for (std::int64_t head = 0; head < q.dim[2]; ++head) {
    const T *x = at.x + head * at.group, *last = at.last + head * at.last_group;
    T* to = at.q + head * q.dim[3] * width;
    for (std::int64_t query = 0; query < q.dim[3]; ++query)
      rotate(x + query * width, to + query * width, turns, heads, turns.query_scale);
    rotate(last, at.k + head * width, turns, heads, turns.key_scale);
    std::copy_n(last + width, width, at.v + head * width);
  }
}

template <class T, class C>
void turn_together(const Position<T>& at, const TimeSlots<C>& turns, const Tensor& q, const Heads& heads) {
  const std::int64_t width = heads.width;
  for (std::int64_t head = 0; head < q.dim[2]; ++head) {
    T *x = at.x + head * at.group, *last = at.last + head * at.last_group;
    const T* from = at.q + head * q.dim[3] * width;
    for (std::int64_t query = 0; query < q.dim[3]; ++query)
      rotate(from + query * width, x + query * width, turns, heads, turns.query_scale);
    rotate(at.k + head * width, last, turns, heads, turns.key_scale);
    std::copy_n(at.v + head * width, width, last + width);
  }
}

// Holds the packed operand, whose keys and values may be in another operand, and the three apart, in either
// direction.
struct Operands {
  const Tensor& x;
  const Tensor* last;  // null: x has all
  const Tensor &q, &k, &v;
  Places places;

  // Points at one sample at one position.
  template <class T>
  Position<T> at(std::int64_t row) const {
    const std::int64_t width = q.dim[4], queries = q.dim[3] * width, keys = 2 * width;
    const std::int64_t group = last ? queries : queries + keys, heads = q.dim[2];
    T* const first = x.as<T>() + row * heads * group;
    return {first,
            last ? last->as<T>() + row * heads * keys : first + queries,
            q.as<T>() + row * heads * queries,
            k.as<T>() + row * heads * width,
            v.as<T>() + row * heads * width,
            group,
            last ? keys : group};
  }
};

// Calls body(position, turns, heads) for every position of every sample.
template <class T, class Body>
void for_positions(const Operands& o, double direction, const KernelArgs& args, const KernelContext& context,
                   const Body& body) {
  const Heads heads{o.q.dim[4], rope_pairs(args.attrs, o.q.dim[4])};
  for_turned_rows<T>(o.q.dim[0], o.q.dim[1], heads.pairs.pairs, o.places, direction,
                     rope_turn_of_heads(args.attrs), args, context,
                     [&](std::int64_t row, const auto& turns) { body(o.at<T>(row), turns, heads); });
}

template <class T>
void take_apart(const Operands& operands, const KernelArgs& args, const KernelContext& context) {
  for_positions<T>(operands, 1.0, args, context,
                   [&](const Position<T>& at, const auto& turns, const Heads& heads) {
                     turn_apart(at, turns, operands.q, heads);
                   });
}

template <class T>
void put_together(const Operands& operands, const KernelArgs& args, const KernelContext& context) {
  for_positions<T>(operands, -1.0, args, context,
                   [&](const Position<T>& at, const auto& turns, const Heads& heads) {
                     turn_together(at, turns, operands.q, heads);
                   });
}

template <class T>
void rope(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Rope> op(args);
  take_apart<T>({op["x"], nullptr, op["q"], op["k"], op["v"], {op["q"].start[1], op["positions"]}}, args,
                context);
}

template <class T>
void rope_at(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::RopeAt> op(args);
  take_apart<T>({op["x"], nullptr, op["q"], op["k"], op["v"], position_in(op["position"])}, args, context);
}

template <class T>
void rope_apart(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::RopeApart> op(args);
  take_apart<T>(
      {op["x_first"], &op["x_last"], op["q"], op["k"], op["v"], {op["q"].start[1], op["positions"]}}, args,
      context);
}

template <class T>
void rope_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::RopeGrad> op(args);
  put_together<T>({op["dx"], nullptr, op["dq"], op["dk"], op["dv"], {op["dq"].start[1], op["positions"]}},
                  args, context);
}

template <class T>
void rope_apart_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::RopeApartGrad> op(args);
  put_together<T>(
      {op["dx_first"], &op["dx_last"], op["dq"], op["dk"], op["dv"], {op["dq"].start[1], op["positions"]}},
      args, context);
}

// `heads` has whole heads, in its last dimension.
template <class Op, OperandOf<Op> heads>
std::int64_t rope_workspace(const OpShape& shape, std::int32_t threads) {
  return turns_workspace(ShapeOf<Op>(shape)[heads].dims[4].extent / 2, threads);
}

Kernel select_rope(const OpShape& shape) {
  const ShapeOf<ops::Rope> s(shape);
  if (!same_type(s, {"x", "q", "k", "v"})) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return rope<T>; });
}

Kernel select_rope_at(const OpShape& shape) {
  const ShapeOf<ops::RopeAt> s(shape);
  if (!same_type(s, {"x", "q", "k", "v"}) || s["position"].dtype != DType::f64) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return rope_at<T>; });
}

Kernel select_rope_apart(const OpShape& shape) {
  const ShapeOf<ops::RopeApart> s(shape);
  if (!same_type(s, {"x_first", "x_last", "q", "k", "v"})) return nullptr;
  return choose_value(s["x_first"].dtype, []<class T>() -> Kernel { return rope_apart<T>; });
}

Kernel select_rope_apart_grad(const OpShape& shape) {
  const ShapeOf<ops::RopeApartGrad> s(shape);
  if (!same_type(s, {"dq", "dk", "dv", "dx_first", "dx_last"})) return nullptr;
  return choose_value(s["dq"].dtype, []<class T>() -> Kernel { return rope_apart_grad<T>; });
}

Kernel select_rope_grad(const OpShape& shape) {
  const ShapeOf<ops::RopeGrad> s(shape);
  if (!same_type(s, {"dq", "dk", "dv", "dx"})) return nullptr;
  return choose_value(s["dq"].dtype, []<class T>() -> Kernel { return rope_grad<T>; });
}

}  // namespace

std::vector<KernelDef> rope_kernels();
std::vector<KernelDef> rope_kernels() {
  return {{ops::Rope::kind, select_rope, rope_workspace<ops::Rope, "x">},
          {ops::RopeAt::kind, select_rope_at, rope_workspace<ops::RopeAt, "x">},
          {ops::RopeGrad::kind, select_rope_grad, rope_workspace<ops::RopeGrad, "dq">},
          {ops::RopeApart::kind, select_rope_apart, rope_workspace<ops::RopeApart, "x_first">},
          {ops::RopeApartGrad::kind, select_rope_apart_grad, rope_workspace<ops::RopeApartGrad, "dq">}};
}

}  // namespace prun::cpu::PRUN_ISA
