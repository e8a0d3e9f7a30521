// Implements attention's gradient in blocks, as attention.cpp has forward's; weights are computed again from
// lse.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/cpu_blocks.hpp"
#include "cpu/dispatch.hpp"
#include "cpu/gemm.hpp"
#include "cpu/lanes.hpp"
#include "cpu/scratch.hpp"
#include "cpu/softmax.hpp"
#include "cpu/values.hpp"
#include "prun/ops/attention.hpp"

namespace prun::cpu::PRUN_ISA {

std::vector<KernelDef> attention_grad_kernels();

namespace {

using namespace attention_blocks;

template <class C>
struct BackwardBuffers {
  C* weights;  // [query_block, key_block]
  C* dscores;  // [query_block, key_block]
  C* dq;       // [query_block, width]
  C* dk;       // [keys, width]
  C* dv;       // [keys, width]
  C* delta;    // [query_block]
  C* slopes;   // [key_block], of scores that are bounded
  void* gemm;

  BackwardBuffers(Scratch& scratch, const BufferSizes& sizes)
      : weights(scratch.take<C>(query_block * key_block)),
        dscores(scratch.take<C>(query_block * key_block)),
        dq(scratch.take<C>(query_block * sizes.width)),
        dk(scratch.take<C>(sizes.keys * sizes.width)),
        dv(scratch.take<C>(sizes.keys * sizes.width)),
        delta(scratch.take<C>(query_block)),
        slopes(scratch.take<C>(sizes.slopes)),
        gemm(scratch.take<std::byte>(sizes.gemm)) {}
};

template <class T>
struct Backward {
  Layout layout;
  HeadViews<const T> from;
  Heads<const T> dy, y;
  const Compute<T>* lse;
  HeadViews<T> to;
};

// Names one query slot's block of queries.
struct Queries {
  Index group, query;
  Range rows;
};

// Computes delta = rows of dy . y, which the softmax's own gradient subtracts from each dweight.
template <class T>
void compute_delta(const Backward<T>& call, const Queries& q, Compute<T>* delta) {
  const Layout& l = call.layout;
  const auto dy = call.dy.rows(l, q.group, q.query, q.rows);
  const auto y = call.y.rows(l, q.group, q.query, q.rows);
  for (Index r = 0; r < q.rows.count; ++r) {
    const T *dy_row = dy.data + r * dy.row_stride, *y_row = y.data + r * y.row_stride;
    delta[r] = lane_sum<Compute<T>>(l.width, [=](Index d) { return load(dy_row[d]) * load(y_row[d]); });
  }
}

// Computes the softmax weights of one block, and the gradients of its scores before scaling.
template <class T>
void compute_weights(const Backward<T>& call, const Queries& q, Range keys,
                     const BackwardBuffers<Compute<T>>& s) {
  using C = Compute<T>;
  const Layout& l = call.layout;
  const auto weights = row_major(s.weights, q.rows.count, keys.count, key_block);
  const auto dscores = row_major(s.dscores, q.rows.count, keys.count, key_block);
  gemm_serial<T, T, C>(l.scale(), call.from.q.rows(l, q.group, q.query, q.rows),
                       call.from.k.rows(l, q.group, l.rows_at(keys)).transposed(), weights, false, s.gemm);
  gemm_serial<T, T, C>(1, call.dy.rows(l, q.group, q.query, q.rows),
                       call.from.v.rows(l, q.group, l.rows_at(keys)).transposed(), dscores, false, s.gemm);
  const C* lse = statistics(call.lse, l, q.group, q.query) + q.rows.first;
  C factors[key_block + 4];  // of weights that may be dropped, from a multiple of 4 on
  const Index aligned = keys.first & 3;
  for (Index r = 0; r < q.rows.count; ++r) {
    const Range seen = l.visible(q.group, q.rows.first + r, keys.first, keys.count);
    const Index end = seen.first + seen.count;
    C *weight = s.weights + r * key_block, *dscore = s.dscores + r * key_block;
    if (l.softcap > 0) cap_row(weight, end, static_cast<C>(l.softcap), s.slopes);
    std::fill_n(weight, seen.first, -std::numeric_limits<C>::infinity());
    exp_row(weight, end, lse[r]);
    const C delta = s.delta[r];
    std::fill_n(dscore, seen.first, C{0});
    if (l.drops.p > 0) {
      l.set_factors(q.group, q.query, q.rows.first + r, {keys.first - aligned, keys.count + aligned},
                    factors);
      multiply_row(dscore + seen.first, seen.count, factors + aligned + seen.first);
    }
#pragma omp simd
    for (Index j = seen.first; j < end; ++j) dscore[j] = weight[j] * (dscore[j] - delta);
    if (l.softcap > 0) multiply_row(dscore + seen.first, seen.count, s.slopes + seen.first);
    if (l.drops.p > 0) multiply_row(weight + seen.first, seen.count, factors + aligned + seen.first);
    std::fill(weight + end, weight + keys.count, C{0});
    std::fill(dscore + end, dscore + keys.count, C{0});
  }
}

// Adds the block's part to dk and dv, which point at the first of `keys`.
template <class T, class C = Compute<T>>
void add_to_keys(const Backward<T>& call, const Queries& q, Range keys, const BackwardBuffers<C>& s, C* dk,
                 C* dv) {
  const Layout& l = call.layout;
  const Matrix<const C> weights = row_major(s.weights, q.rows.count, keys.count, key_block);
  const Matrix<const C> dscores = row_major(s.dscores, q.rows.count, keys.count, key_block);
  gemm_serial<C, T, C>(1, weights.transposed(), call.dy.rows(l, q.group, q.query, q.rows),
                       row_major(dv, keys.count, l.width), true, s.gemm);
  gemm_serial<C, T, C>(l.scale(), dscores.transposed(), call.from.q.rows(l, q.group, q.query, q.rows),
                       row_major(dk, keys.count, l.width), true, s.gemm);
}

template <class T>
void add_to_queries(const Backward<T>& call, const Queries& q, Range keys,
                    const BackwardBuffers<Compute<T>>& s) {
  using C = Compute<T>;
  const Layout& l = call.layout;
  gemm_serial<C, T, C>(l.scale(), row_major(s.dscores, q.rows.count, keys.count, key_block),
                       call.from.k.rows(l, q.group, l.rows_at(keys)), row_major(s.dq, q.rows.count, l.width),
                       true, s.gemm);
}

// Rounds finished sums, one row after the other.
template <class T>
void store_rows(Matrix<T> to, const Compute<T>* sums) {
  for (Index r = 0; r < to.rows; ++r)
    for (Index d = 0; d < to.cols; ++d) store(to.data[r * to.row_stride + d], sums[r * to.cols + d]);
}

// Computes dq of one block of queries, and on the way also their part of dk and dv, which then hold all keys.
template <class T>
void backward_queries(const Backward<T>& call, const Queries& q, bool with_keys,
                      const BackwardBuffers<Compute<T>>& s) {
  const Layout& l = call.layout;
  compute_delta(call, q, s.delta);
  std::fill_n(s.dq, q.rows.count * l.width, Compute<T>{0});
  const Index end = l.keys_end(q.rows.first, q.rows.count);
  for (Index key = l.keys_begin(q.group, q.rows.first); key < end; key += key_block) {
    const Range keys = l.keys_at(key, end);
    const Index row = l.rows_at(keys).first;
    compute_weights(call, q, keys, s);
    if (with_keys) add_to_keys(call, q, keys, s, s.dk + row * l.width, s.dv + row * l.width);
    add_to_queries(call, q, keys, s);
  }
  store_rows(call.to.q.rows(l, q.group, q.query, q.rows), s.dq);
}

// Computes dk and dv of one block of keys, from all queries of the group that see them.
template <class T>
void backward_keys(const Backward<T>& call, Index group, Range keys, const BackwardBuffers<Compute<T>>& s) {
  using C = Compute<T>;
  const Layout& l = call.layout;
  std::fill_n(s.dk, keys.count * l.width, C{0});
  std::fill_n(s.dv, keys.count * l.width, C{0});
  const Index start = l.queries_begin(keys.first);
  for (Index query = 0; query < l.queries; ++query)
    for (Index first = start; first < l.seq && l.start_of(group, first) < keys.first + keys.count;
         first += query_block) {
      const Queries q{group, query, block_at(first, query_block, l.seq)};
      const Index end = l.keys_end(first, q.rows.count);
      if (end <= keys.first) continue;  // no query of these positions sees them
      const Range seen = block_at(keys.first, key_block, end);
      compute_delta(call, q, s.delta);
      compute_weights(call, q, seen, s);
      add_to_keys(call, q, seen, s, s.dk, s.dv);
    }
  store_rows(call.to.k.rows(l, group, l.rows_at(keys)), s.dk);
  store_rows(call.to.v.rows(l, group, l.rows_at(keys)), s.dv);
}

template <class T>
void backward_group(const Backward<T>& call, Index group, const BackwardBuffers<Compute<T>>& s) {
  using C = Compute<T>;
  const Layout& l = call.layout;
  std::fill_n(s.dk, l.keys * l.width, C{0});
  std::fill_n(s.dv, l.keys * l.width, C{0});
  for (Index query = 0; query < l.queries; ++query)
    for (Index first = 0; first < l.seq; first += query_block)
      backward_queries(call, {group, query, block_at(first, query_block, l.seq)}, true, s);
  store_rows(call.to.k.rows(l, group, {0, l.keys}), s.dk);
  store_rows(call.to.v.rows(l, group, {0, l.keys}), s.dv);
}

// A group in one piece takes five products a block; cut up it takes seven, but spreads over more threads.
bool groups_whole(const Layout& l, Index threads) {
  return 5 * blocks_of(l.groups(), threads) * threads <= 7 * l.groups();
}

template <class C>
Shares<BackwardBuffers<C>> backward_shares(const Layout& l, std::int32_t threads) {
  const Index keys = groups_whole(l, threads) ? l.keys : key_block;
  return Shares<BackwardBuffers<C>>(
      {l.width, keys, products_workspace(l, sizeof(C)), l.softcap > 0 ? key_block : 0});
}

template <class T>
void backward(const Backward<T>& call, const KernelArgs& args, const KernelContext& context) {
  const Workers& workers = *context.workers;
  const Layout& l = call.layout;
  const Shares<BackwardBuffers<Compute<T>>> shares = backward_shares<Compute<T>>(l, workers.count);
  const auto own = [&](Index thread) { return shares.of(thread, args.workspace); };
  if (groups_whole(l, workers.count)) {
    deal(workers, l.groups(), [&](Index thread, Index group) { backward_group(call, group, own(thread)); });
    return;
  }
  const Index row_blocks = blocks_of(l.seq, query_block), column_blocks = blocks_of(l.keys, key_block);
  deal(workers, l.units() * row_blocks, [&](Index thread, Index item) {
    const Index unit = item / row_blocks, first = item % row_blocks * query_block;
    const Queries q{unit / l.queries, unit % l.queries, block_at(first, query_block, l.seq)};
    backward_queries(call, q, false, own(thread));
  });
  deal(workers, l.groups() * column_blocks, [&](Index thread, Index item) {
    const Range rows = block_at(item % column_blocks * key_block, key_block, l.keys);
    backward_keys(call, item / column_blocks, {l.base + rows.first, rows.count}, own(thread));
  });
}

template <class T, class Op>
void attention_apart_grad(const ArgsOf<Op>& op, const Layout& l, Index chunk, const KernelContext& context) {
  const T *q = op["q"].template as<const T>(), *k = op[keys_of<Op>()].template as<const T>(),
          *v = op[values_of<Op>()].template as<const T>();
  T *dq = op["dq"].template as<T>(), *dk = op[key_gradients_of<Op>()].template as<T>(),
    *dv = op[value_gradients_of<Op>()].template as<T>();
  backward<T>({.layout = l,
               .from = apart(l, q, k, v, chunk),
               .dy = queries_at(l, op["dy"].template as<const T>(), chunk),
               .y = queries_at(l, op["y"].template as<const T>(), chunk),
               .lse = op["lse"].template as<const Compute<T>>() + chunk * l.seq,
               .to = apart(l, dq, dk, dv, chunk)},
              op, context);
}

template <class T>
void attention_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::AttentionGrad> op(args);
  const Layout l = with_drops(with_documents(apart_layout_of(op), op["documents"]), op);
  attention_apart_grad<T>(op, l, 0, context);
}

template <class T>
void attention_across_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::AttentionAcrossGrad> op(args);
  for_chunks(op, [&](const Layout& l, Index chunk) { attention_apart_grad<T>(op, l, chunk, context); });
}

template <class T>
void attention_packed_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::AttentionPackedGrad> op(args);
  const Layout l = with_documents(packed_layout_of(op), op["documents"]);
  backward<T>({.layout = l,
               .from = together(l, op["x"].as<const T>()),
               .dy = queries_at(l, op["dy"].as<const T>()),
               .y = queries_at(l, op["y"].as<const T>()),
               .lse = op["lse"].as<const Compute<T>>(),
               .to = together(l, op["dx"].as<T>())},
              args, context);
}

// Each thread has some of the heads of queries, and adds their rows in order.
template <class T>
void attention_sink_grad(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const ArgsOf<ops::AttentionSinkGrad> op(args);
  const Tensor &dy = op["dy"], &lse = op["lse"], &sink = op["sink"];
  const Index batch = dy.dim[0], seq = dy.dim[1], heads = dy.dim[2] * dy.dim[3], width = dy.dim[4];
  parallel_ranges(*context.workers, heads, 1, [&](Index begin, Index end) {
    for (Index head = begin; head < end; ++head) {
      const auto score = static_cast<double>(load(sink.as<const T>()[head]));
      double sum = 0;
      for (Index b = 0; b < batch; ++b)
        for (Index s = 0; s < seq; ++s) {
          const Index row = ((b * seq + s) * heads + head) * width;
          const T *const back = dy.as<const T>() + row, *const y = op["y"].as<const T>() + row;
          const C delta = lane_sum<C>(width, [=](Index d) { return load(back[d]) * load(y[d]); });
          sum -= std::exp(score - static_cast<double>(lse.as<const C>()[(b * heads + head) * seq + s])) *
                 static_cast<double>(delta);
        }
      store(op["dsink"].as<T>()[head], static_cast<C>(sum));
    }
  });
}

Kernel select_sink(const OpShape& shape) {
  const ShapeOf<ops::AttentionSinkGrad> s(shape);
  if (!types_fit(s, {"dy", "y", "sink", "dsink"}, "lse")) return nullptr;
  return choose_value(s["dy"].dtype, []<class T>() -> Kernel { return attention_sink_grad<T>; });
}

Kernel select_backward(const OpShape& shape) {
  const ShapeOf<ops::AttentionGrad> s(shape);
  if (!types_fit(s, {"dy", "q", "k", "v", "y", "dq", "dk", "dv"}, "lse")) return nullptr;
  return choose_value(s["dy"].dtype, []<class T>() -> Kernel { return attention_grad<T>; });
}

Kernel select_across_backward(const OpShape& shape) {
  const ShapeOf<ops::AttentionAcrossGrad> s(shape);
  if (!types_fit(s, {"dy", "q", "all_k", "all_v", "y", "dq", "all_dk", "all_dv"}, "lse")) return nullptr;
  return choose_value(s["dy"].dtype, []<class T>() -> Kernel { return attention_across_grad<T>; });
}

Kernel select_packed_backward(const OpShape& shape) {
  const ShapeOf<ops::AttentionPackedGrad> s(shape);
  if (!types_fit(s, {"dy", "x", "y", "dx"}, "lse")) return nullptr;
  return choose_value(s["dy"].dtype, []<class T>() -> Kernel { return attention_packed_grad<T>; });
}

Index backward_bytes(const Layout& l, DType type, std::int32_t threads) {
  return threads * (type == DType::f64 ? backward_shares<double>(l, threads).bytes()
                                       : backward_shares<float>(l, threads).bytes());
}

Index backward_workspace(const OpShape& shape, std::int32_t threads) {
  const ShapeOf<ops::AttentionGrad> s(shape);
  return backward_bytes(apart_layout_of(s), s["q"].dtype, threads);
}

Index across_backward_workspace(const OpShape& shape, std::int32_t threads) {
  const ShapeOf<ops::AttentionAcrossGrad> s(shape);
  return backward_bytes(across_layout_of(s), s["q"].dtype, threads);
}

Index packed_backward_workspace(const OpShape& shape, std::int32_t threads) {
  const ShapeOf<ops::AttentionPackedGrad> s(shape);
  return backward_bytes(packed_layout_of(s), s["x"].dtype, threads);
}

}  // namespace

std::vector<KernelDef> attention_grad_kernels() {
  return {{ops::AttentionGrad::kind, select_backward, backward_workspace},
          {ops::AttentionSinkGrad::kind, select_sink},
          {ops::AttentionAcrossGrad::kind, select_across_backward, across_backward_workspace},
          {ops::AttentionPackedGrad::kind, select_packed_backward, packed_backward_workspace}};
}

}  // namespace prun::cpu::PRUN_ISA
