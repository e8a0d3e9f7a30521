#include "attention/cuda_pieces.hpp"

#include <algorithm>

#include "prun/sequence_order.hpp"

namespace prun::cuda {
namespace {

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

// Graphs were seen to need 256 bytes for themselves.
constexpr std::int64_t own_bytes = 64 << 10;

// Counts the sums of the softmax's gradient; dq in fp32 while it is added up, or, for a fixed order of the
// sums, all gradients of scores in bf16; dk and dv of each query where several share a key.
std::int64_t backward_bytes(const AttentionShape& s, const AttentionPieces& pieces, bool deterministic) {
  const std::int64_t heads = pieces.samples * pieces.heads * s.queries, rows = heads * s.seq;
  const std::int64_t keys = shape_of_keys(s).seq;
  const std::int64_t sums =
      deterministic ? heads * round_up(s.seq, 64) * round_up(keys, 128) * 2 : rows * s.head_dim * 4;
  const std::int64_t of_queries = s.queries > 1 ? 2 * heads * keys * s.head_dim * 2 : 0;
  return rows * 4 + sums + of_queries + own_bytes;
}

// Returns the next smaller number that divides all.
std::int64_t smaller_part(std::int64_t all, std::int64_t part) {
  do --part;
  while (all % part != 0);
  return part;
}

}  // namespace

std::int64_t query_stride(const AttentionShape& shape, const HeadStrides& strides) {
  if (shape.queries == 1) return strides.head;
  return shape.heads == 1 || strides.head == shape.queries * shape.head_dim ? shape.head_dim : 0;
}

AttentionPieces cudnn_pieces(const AttentionLayout& layout) {
  const AttentionShape& s = layout.shape;
  const bool by_group = query_stride(s, layout.q) == 0 || query_stride(s, layout.y) == 0;
  return {by_group ? 1 : s.batch, s.heads, by_group};
}

AttentionPieces cudnn_backward_pieces(const AttentionLayout& layout, bool deterministic) {
  const AttentionShape& s = layout.shape;
  AttentionPieces pieces = cudnn_pieces(layout);
  const auto too_much = [&] { return backward_bytes(s, pieces, deterministic) > cudnn_most_workspace; };
  while (pieces.samples > 1 && too_much()) pieces.samples = smaller_part(s.batch, pieces.samples);
  while (pieces.heads > 1 && too_much()) pieces.heads = smaller_part(s.heads, pieces.heads);
  return pieces;
}

std::string cudnn_refusal(const AttentionLayout& layout) {
  const AttentionShape& s = layout.shape;
  if (const std::string absence = cudnn_absence(); !absence.empty()) return absence;
  if (s.across() && !s.causal) return "cuDNN's attention takes a part of the queries under a causal mask";
  if (s.head_dim % 8 != 0 || s.head_dim > 256)
    return "cuDNN's attention takes heads of 8, 16, 24 and so on up to 256 channels, not " +
           std::to_string(s.head_dim);
  if (!s.causal && s.window > 0) return "cuDNN's attention here takes windows under a causal mask";
  if (s.softcap != 0) return "cuDNN's attention here takes scores that are not bounded";
  if (s.p != 0) return "cuDNN's attention here drops no weights";
  if (s.seq < 2) return "cuDNN's attention takes two positions or more";
  for (const HeadStrides& at : {layout.q, layout.k, layout.v, layout.y})
    if (at.batch % 8 != 0 || at.seq % 8 != 0 || at.head % 8 != 0)
      return "cuDNN's attention takes rows that begin at multiples of 16 bytes";
  return {};
}

std::vector<QueryRun> query_runs(const AttentionShape& s, std::int64_t most_rows) {
  const SequenceOrder order{s.chunk, s.chunks};
  std::vector<QueryRun> runs;
  for (std::int64_t row = 0; row < s.seq; ++row) {
    const std::int64_t keys = order.position(s.first + row) + 1;
    if (runs.empty() || keys != runs.back().keys + 1 || runs.back().rows == most_rows)
      runs.push_back({row, 0, keys});
    ++runs.back().rows;
    runs.back().keys = keys;
  }
  return runs;
}

std::int64_t most_query_rows(const AttentionLayout& layout, bool deterministic) {
  constexpr std::int64_t least = 256;
  AttentionLayout one = layout;
  one.shape.batch = one.shape.heads = 1;
  while (one.shape.seq > least &&
         backward_bytes(one.shape, cudnn_pieces(one), deterministic) > cudnn_most_workspace)
    one.shape.seq = (one.shape.seq + 1) / 2;
  return one.shape.seq;
}

std::int64_t cudnn_workspace(const AttentionLayout&) { return own_bytes; }

std::int64_t cudnn_backward_workspace(const AttentionLayout& layout, bool deterministic) {
  return backward_bytes(layout.shape, cudnn_backward_pieces(layout, deterministic), deterministic);
}

std::int64_t cudnn_most_backward_workspace(const AttentionLayout& layout, bool deterministic) {
  const std::int64_t at_once = backward_bytes(layout.shape, cudnn_pieces(layout), deterministic);
  return std::max(cudnn_backward_workspace(layout, deterministic), std::min(at_once, cudnn_most_workspace));
}

}  // namespace prun::cuda
