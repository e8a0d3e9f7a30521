// Implements attention in blocks: scores exist for one block of queries and one block of keys at a time, with
// a running maximum and sum per query (attention_blocks.hpp).
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cpu/attention_blocks.hpp"
#include "cpu/dispatch.hpp"
#include "cpu/gemm.hpp"
#include "cpu/lanes.hpp"
#include "cpu/scratch.hpp"
#include "cpu/softmax.hpp"
#include "cpu/values.hpp"
#include "prun/op.hpp"

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
};

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
    if (largest != before) {
      const C shrink = std::exp(before - largest);
      s.largest[r] = largest;
      s.sum[r] *= static_cast<double>(shrink);
      C* result = s.result + r * width;
#pragma omp simd
      for (Index d = 0; d < width; ++d) result[d] *= shrink;
    }
    s.sum[r] += row_sum(row, end);
  }
  std::fill(row + end, row + keys, C{0});
}

template <class T>
void store_result(const Forward<T>& call, Index group, Index query, Range rows,
                  const ForwardBuffers<Compute<T>>& s) {
  using C = Compute<T>;
  const Layout& l = call.layout;
  const Matrix<T> y = call.y.rows(l, group, query, rows);
  C* lse = statistics(call.lse, l, group, query) + rows.first;
  for (Index r = 0; r < rows.count; ++r) {
    const C inverse = static_cast<C>(1 / s.sum[r]);
    const C* from = s.result + r * l.width;
    T* to = y.data + r * y.row_stride;
#pragma omp simd
    for (Index d = 0; d < l.width; ++d) store(to[d], from[d] * inverse);
    lse[r] = static_cast<C>(static_cast<double>(s.largest[r]) + std::log(s.sum[r]));
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
    for (Index r = 0; r < rows.count; ++r)
      fold_row(s, r, hidden + keys.count, l.visible(group, first + r, key, hidden + keys.count), l.width);
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

template <class T>
void attention_apart(const Layout& l, Index chunk, const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  forward<T>({l, apart(l, o[0].as<const T>(), o[1].as<const T>(), o[2].as<const T>(), chunk),
              queries_at(l, o[3].as<T>(), chunk), o[4].as<Compute<T>>() + chunk * l.seq},
             forward_shares<Compute<T>>(l), args, context);
}

template <class T>
void attention(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  attention_apart<T>(with_documents(layout_of(o[0], args.attrs), o[5]), 0, args, context);
}

template <class T>
void attention_across(const KernelArgs& args, const KernelContext& context) {
  for_chunks(args, 0, 5, [&](const Layout& l, Index chunk) { attention_apart<T>(l, chunk, args, context); });
}

template <class T>
void attention_packed(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  const Layout l = with_documents(packed_layout_of(o[0], args.attrs), o[3]);
  forward<T>({l, together(l, o[0].as<const T>()), queries_at(l, o[1].as<T>()), o[2].as<Compute<T>>()},
             forward_shares<Compute<T>>(l), args, context);
}

// Puts rows of some positions among the rows of all.
template <class T>
void keep_rows(const Tensor& rows, const Tensor& all, Index position) {
  const Index width = rows.inner(2), count = rows.dim[1] * width;
  for (Index b = 0; b < rows.dim[0]; ++b)
    std::copy_n(rows.as<const T>() + b * count, count, all.as<T>() + (b * all.dim[1] + position) * width);
}

template <class T>
void attention_at(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  const Index position = position_in(o[3]);
  keep_rows<T>(o[1], o[4], position);
  keep_rows<T>(o[2], o[5], position);
  Layout l = layout_of(o[0], args.attrs);
  l.keys = o[4].dim[1];
  l.first = position;
  forward<T>({l, apart(l, o[0].as<const T>(), o[4].as<const T>(), o[5].as<const T>()),
              queries_at(l, o[6].as<T>()), o[7].as<Compute<T>>()},
             shares_at<Compute<T>>(l), args, context);
}

Kernel select_forward(const OpShape& shape) {
  if (!types_fit(shape, {0, 1, 2, 3}, 4)) return nullptr;
  return choose_value(shape.operand[0].dtype, []<class T>() -> Kernel { return attention<T>; });
}

Kernel select_across(const OpShape& shape) {
  if (!types_fit(shape, {0, 1, 2, 3}, 4)) return nullptr;
  return choose_value(shape.operand[0].dtype, []<class T>() -> Kernel { return attention_across<T>; });
}

Kernel select_at(const OpShape& shape) {
  if (!types_fit(shape, {0, 1, 2, 4, 5, 6}, 7) || shape.operand[3].dtype != DType::f64) return nullptr;
  return choose_value(shape.operand[0].dtype, []<class T>() -> Kernel { return attention_at<T>; });
}

Kernel select_packed(const OpShape& shape) {
  if (!types_fit(shape, {0, 1}, 2)) return nullptr;
  return choose_value(shape.operand[0].dtype, []<class T>() -> Kernel { return attention_packed<T>; });
}

Index forward_bytes(const Layout& l, DType type, std::int32_t threads) {
  return threads *
         (type == DType::f64 ? forward_shares<double>(l).bytes() : forward_shares<float>(l).bytes());
}

Index forward_workspace(const OpShape& s, std::int32_t threads) {
  return forward_bytes(layout_of(s.operand[0], s.attrs), s.operand[0].dtype, threads);
}

Index at_workspace(const OpShape& s, std::int32_t threads) {
  const Layout l = layout_of(s.operand[0], s.attrs);
  return threads *
         (s.operand[0].dtype == DType::f64 ? shares_at<double>(l).bytes() : shares_at<float>(l).bytes());
}

Index across_workspace(const OpShape& s, std::int32_t threads) {
  return forward_bytes(across_layout_of(s, 0), s.operand[0].dtype, threads);
}

Index packed_workspace(const OpShape& s, std::int32_t threads) {
  return forward_bytes(packed_layout_of(s.operand[0], s.attrs), s.operand[0].dtype, threads);
}

}  // namespace

std::vector<KernelDef> attention_kernels() {
  return {{"attention", select_forward, forward_workspace},
          {"attention_at", select_at, at_workspace},
          {"attention_across", select_across, across_workspace},
          {"attention_packed", select_packed, packed_workspace}};
}

}  // namespace prun::cpu::PRUN_ISA
