// Implements latent_heads, split_latent and narrow_heads, and their gradients (kernels/latent/latent.hpp).
#include <algorithm>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/turns.hpp"
#include "prun/ops/latent.hpp"
#include "rope_attrs.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

// ------------------------------------------------------------------- heads

struct Widths {
  std::int64_t head_dim, turned, values;
  bool interleaved;

  template <class Op>
  static Widths of(std::int64_t head_dim, const ArgsOf<Op>& op) {
    return {head_dim, op.integer("turned"), op.integer("values"), op.integer("interleaved") != 0};
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
template <class T, class Op, class Body>
void for_positions(const ArgsOf<Op>& op, const Operands& o, double direction, const KernelContext& context,
                   const Body& body) {
  const KernelArgs& args = op;
  const Widths widths = Widths::of(o.k.dim[3], op);
  for_turned_rows<T>(
      o.k.dim[0], o.k.dim[1], widths.pairs(), o.places, direction, rope_turn<Op>(args.attrs), args, context,
      [&](std::int64_t row, const auto& turns) { body(o.at<T>(row), widths, turns, o.k.dim[2]); });
}

template <class T, class Op>
void turn_on(const ArgsOf<Op>& op, const Places& places, const KernelContext& context) {
  for_positions<T>(op, {op["x"], op["kv"], op["shared"], op["q"], op["k"], op["v"], places}, 1.0, context,
                   make_heads<T, Compute<T>>);
}

template <class T>
void latent_heads(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::LatentHeads> op(args);
  turn_on<T>(op, {op["x"].start[1], op["positions"]}, context);
}

template <class T>
void latent_heads_at(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::LatentHeadsAt> op(args);
  turn_on<T>(op, position_in(op["position"]), context);
}

template <class T>
void latent_heads_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::LatentHeadsGrad> op(args);
  const Places places{op["dq"].start[1], op["positions"]};
  for_positions<T>(op, {op["dx"], op["dkv"], op["dshared"], op["dq"], op["dk"], op["dv"], places}, -1.0,
                   context, take_heads_back<T, Compute<T>>);
}

template <class Op>
std::int64_t heads_workspace(const OpShape& shape, std::int32_t threads) {
  const ShapeOf<Op> s(shape);
  return turns_workspace(s.integer("turned") / 2, threads);
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
  const ArgsOf<ops::SplitLatent> op(args);
  move_parts(op["x"].as<T>(), op["latent"], op["shared"], true, context);
}

template <class T>
void join_latent(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::JoinLatent> op(args);
  move_parts(op["x"].as<T>(), op["latent"], op["shared"], false, context);
}

template <class Op, class T>
void set_width(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<Op> op(args);
  const Tensor &x = op["x"], &y = op["y"];
  copy_rows(x.as<const T>(), x.inner(1), y.as<T>(), y.inner(1), x.outer(1), context);
}

Kernel select_heads(const OpShape& shape) {
  const ShapeOf<ops::LatentHeads> s(shape);
  if (!same_type(s, {"x", "kv", "shared", "q", "k", "v"})) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return latent_heads<T>; });
}

Kernel select_heads_at(const OpShape& shape) {
  const ShapeOf<ops::LatentHeadsAt> s(shape);
  if (!same_type(s, {"x", "kv", "shared", "q", "k", "v"}) || s["position"].dtype != DType::f64)
    return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return latent_heads_at<T>; });
}

Kernel select_heads_grad(const OpShape& shape) {
  const ShapeOf<ops::LatentHeadsGrad> s(shape);
  if (!same_type(s, {"dq", "dk", "dv", "dx", "dkv", "dshared"})) return nullptr;
  return choose_value(s["dq"].dtype, []<class T>() -> Kernel { return latent_heads_grad<T>; });
}

Kernel select_split(const OpShape& shape) {
  const ShapeOf<ops::SplitLatent> s(shape);
  if (!same_type(s, {"x", "latent", "shared"})) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return split_latent<T>; });
}

Kernel select_join(const OpShape& shape) {
  const ShapeOf<ops::JoinLatent> s(shape);
  if (!same_type(s, {"latent", "shared", "x"})) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return join_latent<T>; });
}

template <class Op>
Kernel select_width(const OpShape& shape) {
  const ShapeOf<Op> s(shape);
  if (!same_type(s, {"x", "y"})) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return set_width<Op, T>; });
}

}  // namespace

std::vector<KernelDef> latent_kernels();
std::vector<KernelDef> latent_kernels() {
  using namespace ops;
  return {{LatentHeads::kind, select_heads, heads_workspace<LatentHeads>},
          {LatentHeadsAt::kind, select_heads_at, heads_workspace<LatentHeadsAt>},
          {LatentHeadsGrad::kind, select_heads_grad, heads_workspace<LatentHeadsGrad>},
          {SplitLatent::kind, select_split},
          {JoinLatent::kind, select_join},
          {NarrowHeads::kind, select_width<NarrowHeads>},
          {WidenHeads::kind, select_width<WidenHeads>}};
}

}  // namespace prun::cpu::PRUN_ISA
