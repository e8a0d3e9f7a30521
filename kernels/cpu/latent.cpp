// Implements latent_heads, split_latent and narrow_heads, and their gradients (core/ops/latent.cpp).
#include <algorithm>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/turns.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

// ------------------------------------------------------------------- heads

struct Widths {
  std::int64_t head_dim, turned, values;
  bool interleaved;

  static Widths of(std::int64_t head_dim, const KernelArgs& args) {
    return {head_dim, args.attrs[8].i, args.attrs[9].i, args.attrs[10].i != 0};
  }
  std::int64_t straight() const { return head_dim - turned; }  // counts channels that do not turn
  std::int64_t latent() const { return straight() + values; }
  std::int64_t pairs() const { return turned / 2; }
  // These return where the two channels of a pair are among those that turn, in the order of the operand.
  std::int64_t first(std::int64_t pair) const { return interleaved ? 2 * pair : pair; }
  std::int64_t second(std::int64_t pair) const { return interleaved ? 2 * pair + 1 : pair + pairs(); }
};

// Is a position of a sample: the op's input and attention's operands, in either direction.
template <class T>
struct Row {
  T *x, *kv, *shared, *q, *k, *v;
};

struct Operands {
  const Tensor &x, &kv, &shared, &q, &k, &v;
  Places places;

  template <class T>
  Row<T> at(std::int64_t row) const {
    const std::int64_t heads = k.dim[2], wide = heads * k.dim[3];
    return {x.as<T>() + row * wide,
            kv.as<T>() + row * heads * kv.dim[3],
            shared.as<T>() + row * shared.dim[2],
            q.as<T>() + row * wide,
            k.as<T>() + row * wide,
            v.as<T>() + row * wide};
  }
};

template <class T, class C>
void make_heads(const Row<T>& row, const Widths& w, const TimeSlots<C>& turns, std::int64_t heads) {
  const C scale = turns.query_scale;
  for (std::int64_t h = 0; h < heads; ++h) {
    const T *x = row.x + h * w.head_dim, *kv = row.kv + h * w.latent();
    T *q = row.q + h * w.head_dim, *k = row.k + h * w.head_dim, *v = row.v + h * w.head_dim;
    for (std::int64_t i = 0; i < w.straight(); ++i) store(q[i], load(x[i]) * scale);
    std::copy_n(kv, w.straight(), k);
    std::copy_n(kv + w.straight(), w.values, v);
    std::fill(v + w.values, v + w.head_dim, T(0));
    x += w.straight(), q += w.straight(), k += w.straight();
    for (std::int64_t i = 0; i < w.pairs(); ++i) {
      const C c = turns.cosine[i] * turns.key_scale, s = turns.sine[i] * turns.key_scale;
      const C a = load(x[w.first(i)]), b = load(x[w.second(i)]);
      store(q[i], (a * c - b * s) * scale);
      store(q[i + w.pairs()], (b * c + a * s) * scale);
      const C d = load(row.shared[w.first(i)]), e = load(row.shared[w.second(i)]);
      store(k[i], d * c - e * s);
      store(k[i + w.pairs()], e * c + d * s);
    }
  }
}

// `turns` turn back. The gradient of what heads share is summed in the order of the heads.
template <class T, class C>
void take_heads_back(const Row<T>& row, const Widths& w, const TimeSlots<C>& turns, std::int64_t heads) {
  const C scale = turns.query_scale;
  for (std::int64_t h = 0; h < heads; ++h) {
    T *x = row.x + h * w.head_dim, *kv = row.kv + h * w.latent();
    const T *q = row.q + h * w.head_dim, *k = row.k + h * w.head_dim, *v = row.v + h * w.head_dim;
    for (std::int64_t i = 0; i < w.straight(); ++i) store(x[i], load(q[i]) * scale);
    std::copy_n(k, w.straight(), kv);
    std::copy_n(v, w.values, kv + w.straight());
    x += w.straight(), q += w.straight();
    for (std::int64_t i = 0; i < w.pairs(); ++i) {
      const C c = turns.cosine[i] * turns.key_scale * scale, s = turns.sine[i] * turns.key_scale * scale;
      const C a = load(q[i]), b = load(q[i + w.pairs()]);
      store(x[w.first(i)], a * c - b * s);
      store(x[w.second(i)], b * c + a * s);
    }
  }
  for (std::int64_t i = 0; i < w.pairs(); ++i) {
    C a = 0, b = 0;
    for (std::int64_t h = 0; h < heads; ++h) {
      const T* k = row.k + h * w.head_dim + w.straight();
      a += load(k[i]), b += load(k[i + w.pairs()]);
    }
    const C c = turns.cosine[i] * turns.key_scale, s = turns.sine[i] * turns.key_scale;
    store(row.shared[w.first(i)], a * c - b * s);
    store(row.shared[w.second(i)], b * c + a * s);
  }
}

// Calls body(row, widths, turns, heads) for every position of every sample.
template <class T, class Body>
void for_positions(const Operands& o, double direction, const KernelArgs& args, const KernelContext& context,
                   const Body& body) {
  const Widths widths = Widths::of(o.k.dim[3], args);
  for_turned_rows<T>(
      o.k.dim[0], o.k.dim[1], widths.pairs(), o.places, direction, rope_turn(args.attrs), args, context,
      [&](std::int64_t row, const auto& turns) { body(o.at<T>(row), widths, turns, o.k.dim[2]); });
}

template <class T>
void turn_on(const Operands& operands, const KernelArgs& args, const KernelContext& context) {
  for_positions<T>(operands, 1.0, args, context, make_heads<T, Compute<T>>);
}

template <class T>
void latent_heads(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  turn_on<T>({o[0], o[1], o[2], o[3], o[4], o[5], {o[0].start[1], o[6]}}, args, context);
}

template <class T>
void latent_heads_at(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  turn_on<T>({o[0], o[1], o[2], o[4], o[5], o[6], position_in(o[3])}, args, context);
}

template <class T>
void latent_heads_grad(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  for_positions<T>({o[3], o[4], o[5], o[0], o[1], o[2], {o[0].start[1], o[6]}}, -1.0, args, context,
                   take_heads_back<T, Compute<T>>);
}

std::int64_t heads_workspace(const OpShape& s, std::int32_t threads) {
  return turns_workspace(s.attrs[8].i / 2, threads);
}

// ------------------------------------------------------------------- channels

// Copies rows of `from` columns into rows of `to`: columns left over are dropped, those missing are zero.
template <class T>
void copy_rows(const T* from, std::int64_t from_width, T* to, std::int64_t to_width, std::int64_t rows,
               const KernelContext& context) {
  const std::int64_t some = std::min(from_width, to_width);
  parallel_ranges(*context.workers, rows, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      std::copy_n(from + row * from_width, some, to + row * to_width);
      std::fill(to + row * to_width + some, to + (row + 1) * to_width, T(0));
    }
  });
}

// Moves parts between whole [.., a + b] and both one [.., a] and other [.., b]; `apart` says which way.
template <class T>
void move_parts(T* whole, const Tensor& one, const Tensor& other, bool apart, const KernelContext& context) {
  const std::int64_t a = one.inner(1), b = other.inner(1);
  parallel_ranges(*context.workers, one.outer(1), 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      T *all = whole + row * (a + b), *first = one.as<T>() + row * a, *last = other.as<T>() + row * b;
      if (apart) {
        std::copy_n(all, a, first);
        std::copy_n(all + a, b, last);
      } else {
        std::copy_n(first, a, all);
        std::copy_n(last, b, all + a);
      }
    }
  });
}

template <class T>
void split_latent(const KernelArgs& args, const KernelContext& context) {
  move_parts(args.operands[0].as<T>(), args.operands[1], args.operands[2], true, context);
}

template <class T>
void join_latent(const KernelArgs& args, const KernelContext& context) {
  move_parts(args.operands[2].as<T>(), args.operands[0], args.operands[1], false, context);
}

template <class T>
void set_width(const KernelArgs& args, const KernelContext& context) {
  const Tensor &x = args.operands[0], &y = args.operands[1];
  copy_rows(x.as<const T>(), x.inner(1), y.as<T>(), y.inner(1), x.outer(1), context);
}

Kernel select_heads(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 3, 4, 5})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return latent_heads<T>; });
}

Kernel select_heads_at(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 4, 5, 6}) || s.operand[3].dtype != DType::f64) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return latent_heads_at<T>; });
}

Kernel select_heads_grad(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 3, 4, 5})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return latent_heads_grad<T>; });
}

Kernel select_split(const OpShape& s) {
  if (!same_type(s, {0, 1, 2})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return split_latent<T>; });
}

Kernel select_join(const OpShape& s) {
  if (!same_type(s, {0, 1, 2})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return join_latent<T>; });
}

Kernel select_width(const OpShape& s) {
  if (!same_type(s, {0, 1})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return set_width<T>; });
}

}  // namespace

std::vector<KernelDef> latent_kernels();
std::vector<KernelDef> latent_kernels() {
  return {{"latent_heads", select_heads, heads_workspace},
          {"latent_heads_at", select_heads_at, heads_workspace},
          {"latent_heads_grad", select_heads_grad, heads_workspace},
          {"split_latent", select_split},
          {"join_latent", select_join},
          {"narrow_heads", select_width},
          {"widen_heads", select_width}};
}

}  // namespace prun::cpu::PRUN_ISA
