// Implements attention in blocks: scores exist for one block of queries and one block of keys at a time, with
// a running maximum and sum per query (attention/cpu_blocks.hpp).
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/cpu_blocks.hpp"
#include "attention/cpu_kept.hpp"
#include "cpu/dispatch.hpp"
#include "cpu/gemm.hpp"
#include "cpu/lanes.hpp"
#include "cpu/scratch.hpp"
#include "cpu/softmax.hpp"
#include "cpu/values.hpp"
#include "prun/ops/attention.hpp"

namespace prun::cpu::PRUN_ISA {

std::vector<KernelDef> attention_kernels();

namespace {

using namespace attention_blocks;

template <class C>
struct ForwardBuffers {
  C* scores;   // [query_block, key_block]
  C* result;   // [query_block, width]
  C* largest;  // [query_block]
  double* sum;
  void* gemm;

  ForwardBuffers(Scratch& scratch, const BufferSizes& sizes)
      : scores(scratch.take<C>(query_block * key_block)),
        result(scratch.take<C>(query_block * sizes.width)),
        largest(scratch.take<C>(query_block)),
        sum(scratch.take<double>(query_block)),
        gemm(scratch.take<std::byte>(sizes.gemm)) {}
};

template <class T>
struct Forward {
  Layout layout;  // that of the queries
  HeadViews<const T> from;
  Heads<T> y;
  Compute<T>* lse;
  const T* sink;  // [heads, queries]; null: there is none
};

// Has row r's softmax be relative to a larger score: what it held so far shrinks to match.
template <class C>
void enlarge(const ForwardBuffers<C>& s, Index r, C largest, Index width) {
  const C shrink = std::exp(s.largest[r] - largest);
  s.largest[r] = largest;
  s.sum[r] *= static_cast<double>(shrink);
  C* result = s.result + r * width;
#pragma omp simd
  for (Index d = 0; d < width; ++d) result[d] *= shrink;
}

// Takes the scores of visible keys into row r's softmax; scores become weights relative to the new maximum,
// and what the result held so far shrinks to match. Keys that are not visible have no weight.
template <class C>
void fold_row(const ForwardBuffers<C>& s, Index r, Index keys, Range seen, Index width) {
  C* row = s.scores + r * key_block;
  const Index end = seen.count > 0 ? seen.first + seen.count : 0;
  if (end > 0) {
    std::fill_n(row, seen.first, -std::numeric_limits<C>::infinity());
    const C before = s.largest[r];
    const C largest = row_max(row, end, before);
    exp_row(row, end, largest);
    if (largest != before) enlarge(s, r, largest, width);
    s.sum[r] += row_sum(row, end);
  }
  std::fill(row + end, row + keys, C{0});
}

// Lets a sink take its share of the weights of row r.
template <class C>
void take_share(const ForwardBuffers<C>& s, Index r, C sink, Index width) {
  if (sink > s.largest[r]) enlarge(s, r, sink, width);
  s.sum[r] += std::exp(static_cast<double>(sink) - static_cast<double>(s.largest[r]));
}

template <class T>
void store_result(const Forward<T>& call, Index group, Index query, Range rows,
                  const ForwardBuffers<Compute<T>>& s) {
  using C = Compute<T>;
  const Layout& l = call.layout;
  const Matrix<T> y = call.y.rows(l, group, query, rows);
  C* lse = statistics(call.lse, l, group, query) + rows.first;
  const T* const sink = call.sink ? call.sink + group % l.heads * l.queries + query : nullptr;
  for (Index r = 0; r < rows.count; ++r) {
    if (sink) take_share(s, r, static_cast<C>(load(*sink)), l.width);
    const C inverse = static_cast<C>(1 / s.sum[r]);
    const C* from = s.result + r * l.width;
    T* to = y.data + r * y.row_stride;
#pragma omp simd
    for (Index d = 0; d < l.width; ++d) store(to[d], from[d] * inverse);
    lse[r] = static_cast<C>(static_cast<double>(s.largest[r]) + std::log(s.sum[r]));
  }
}

// Drops weights of a block, whose sums have all of them.
template <class C>
void drop_weights(const Layout& l, Index group, Index query, Range rows, Range keys,
                  const ForwardBuffers<C>& s) {
  C factors[key_block];
  for (Index r = 0; r < rows.count; ++r) {
    l.set_factors(group, query, rows.first + r, keys, factors);
    multiply_row(s.scores + r * key_block, keys.count, factors);
  }
}

template <class T>
void forward_block(const Forward<T>& call, Index unit, Index first, const ForwardBuffers<Compute<T>>& s) {
  using C = Compute<T>;
  const Layout& l = call.layout;
  const Index group = unit / l.queries, query = unit % l.queries;
  const Range rows = block_at(first, query_block, l.seq);
  const auto q = call.from.q.rows(l, group, query, rows);
  const auto result = row_major(s.result, rows.count, l.width);
  std::fill_n(s.largest, rows.count, -std::numeric_limits<C>::infinity());
  std::fill_n(s.sum, rows.count, 0.0);
  std::fill_n(s.result, rows.count * l.width, C{0});
  const Index end = l.keys_end(first, rows.count);
  for (Index key = l.keys_begin(group, first); key < end; key += key_block) {
    const Range keys = l.keys_at(key, end);
    const Index hidden = keys.first - key;  // keys that are not there: no query sees them
    const auto k = call.from.k.rows(l, group, l.rows_at(keys));
    const auto v = call.from.v.rows(l, group, l.rows_at(keys));
    const auto scores = row_major(s.scores + hidden, rows.count, keys.count, key_block);
    gemm_serial<T, T, C>(l.scale(), q, k.transposed(), scores, false, s.gemm);
    if (l.softcap > 0)
      for (Index r = 0; r < rows.count; ++r)
        cap_row(scores.data + r * key_block, keys.count, static_cast<C>(l.softcap));
    for (Index r = 0; r < rows.count; ++r)
      fold_row(s, r, hidden + keys.count, l.visible(group, first + r, key, hidden + keys.count), l.width);
    if (l.drops.p > 0) drop_weights(l, group, query, rows, {key, hidden + keys.count}, s);
    gemm_serial<C, T, C>(1, scores, v, result, true, s.gemm);
  }
  store_result(call, group, query, rows, s);
}

template <class C>
using ForwardShares = Shares<ForwardBuffers<C>>;

template <class C>
ForwardShares<C> forward_shares(const Layout& l) {
  return ForwardShares<C>({l.width, 0, products_workspace(l, sizeof(C))});
}

template <class C>
ForwardShares<C> shares_at(const Layout& l) {
  return ForwardShares<C>({l.width, 0, products_workspace_at(l, sizeof(C))});
}

template <class T>
void forward(const Forward<T>& call, const ForwardShares<Compute<T>>& shares, const KernelArgs& args,
             const KernelContext& context) {
  const Index blocks = blocks_of(call.layout.seq, query_block);
  deal(*context.workers, call.layout.units() * blocks, [&](Index thread, Index item) {
    forward_block(call, item / blocks, item % blocks * query_block, shares.of(thread, args.workspace));
  });
}

template <class T, class Op>
void attention_apart(const ArgsOf<Op>& op, const Layout& l, Index chunk, const KernelContext& context) {
  const T *q = op["q"].template as<const T>(), *k = op[keys_of<Op>()].template as<const T>(),
          *v = op[values_of<Op>()].template as<const T>();
  forward<T>({.layout = l,
              .from = apart(l, q, k, v, chunk),
              .y = queries_at(l, op["y"].template as<T>(), chunk),
              .lse = op["lse"].template as<Compute<T>>() + chunk * l.seq,
              .sink = op["sink"].template as<const T>()},
             forward_shares<Compute<T>>(l), op, context);
}

template <class T>
void attention(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Attention> op(args);
  const Layout l = with_drops(with_documents(apart_layout_of(op), op["documents"]), op);
  attention_apart<T>(op, l, 0, context);
}

template <class T>
void attention_across(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::AttentionAcross> op(args);
  for_chunks(op, [&](const Layout& l, Index chunk) { attention_apart<T>(op, l, chunk, context); });
}

template <class T>
void attention_packed(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::AttentionPacked> op(args);
  const Layout l = with_documents(packed_layout_of(op), op["documents"]);
  forward<T>({.layout = l,
              .from = together(l, op["x"].as<const T>()),
              .y = queries_at(l, op["y"].as<T>()),
              .lse = op["lse"].as<Compute<T>>(),
              .sink = op["sink"].as<const T>()},
             forward_shares<Compute<T>>(l), args, context);
}

template <class T>
void attention_at(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::AttentionAt> op(args);
  const Index position = position_in(op["position"]);
  keep_rows<T>(op["k"], op["kept_k"], position);
  keep_rows<T>(op["v"], op["kept_v"], position);
  Layout l = apart_layout_of(op);
  l.keys = op["kept_k"].dim[1];
  l.first = position;
  const T *q = op["q"].as<const T>(), *k = op["kept_k"].as<const T>(), *v = op["kept_v"].as<const T>();
  forward<T>({.layout = l,
              .from = apart(l, q, k, v),
              .y = queries_at(l, op["y"].as<T>()),
              .lse = op["lse"].as<Compute<T>>(),
              .sink = op["sink"].as<const T>()},
             shares_at<Compute<T>>(l), args, context);
}

Kernel select_forward(const OpShape& shape) {
  const ShapeOf<ops::Attention> s(shape);
  if (!types_fit(s, {"q", "k", "v", "y"}, "lse") || !same_type(s, {"q", "sink"})) return nullptr;
  return choose_value(s["q"].dtype, []<class T>() -> Kernel { return attention<T>; });
}

Kernel select_across(const OpShape& shape) {
  const ShapeOf<ops::AttentionAcross> s(shape);
  if (!types_fit(s, {"q", "all_k", "all_v", "y"}, "lse") || !same_type(s, {"q", "sink"})) return nullptr;
  return choose_value(s["q"].dtype, []<class T>() -> Kernel { return attention_across<T>; });
}

Kernel select_at(const OpShape& shape) {
  const ShapeOf<ops::AttentionAt> s(shape);
  if (!types_fit(s, {"q", "k", "v", "kept_k", "kept_v", "y"}, "lse") || s["position"].dtype != DType::f64 ||
      !same_type(s, {"q", "sink"}))
    return nullptr;
  return choose_value(s["q"].dtype, []<class T>() -> Kernel { return attention_at<T>; });
}

Kernel select_packed(const OpShape& shape) {
  const ShapeOf<ops::AttentionPacked> s(shape);
  if (!types_fit(s, {"x", "y"}, "lse") || !same_type(s, {"x", "sink"})) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return attention_packed<T>; });
}

Index forward_bytes(const Layout& l, DType type, std::int32_t threads) {
  return threads *
         (type == DType::f64 ? forward_shares<double>(l).bytes() : forward_shares<float>(l).bytes());
}

Index forward_workspace(const OpShape& shape, std::int32_t threads) {
  const ShapeOf<ops::Attention> s(shape);
  return forward_bytes(apart_layout_of(s), s["q"].dtype, threads);
}

Index at_workspace(const OpShape& shape, std::int32_t threads) {
  const ShapeOf<ops::AttentionAt> s(shape);
  const Layout l = apart_layout_of(s);
  return threads * (s["q"].dtype == DType::f64 ? shares_at<double>(l).bytes() : shares_at<float>(l).bytes());
}

Index across_workspace(const OpShape& shape, std::int32_t threads) {
  const ShapeOf<ops::AttentionAcross> s(shape);
  return forward_bytes(across_layout_of(s), s["q"].dtype, threads);
}

Index packed_workspace(const OpShape& shape, std::int32_t threads) {
  const ShapeOf<ops::AttentionPacked> s(shape);
  return forward_bytes(packed_layout_of(s), s["x"].dtype, threads);
}

}  // namespace

std::vector<KernelDef> attention_kernels() {
  return {{ops::Attention::kind, select_forward, forward_workspace},
          {ops::AttentionAt::kind, select_at, at_workspace},
          {ops::AttentionAcross::kind, select_across, across_workspace},
          {ops::AttentionPacked::kind, select_packed, packed_workspace}};
}

}  // namespace prun::cpu::PRUN_ISA
