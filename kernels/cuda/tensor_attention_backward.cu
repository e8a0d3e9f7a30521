// The weights are computed again from lse, twice: by blocks that keep a tile of keys and values and meet all
// queries that see it, and by blocks that keep a tile of queries and meet the keys that these see. So no sum
// is added up by several blocks, and no block waits for another. The weights of keys lie [key, query]: as a
// product leaves them, they are the next one's left factor.
#include <cmath>

#include "cuda/math.cuh"
#include "cuda/tensor_attention.cuh"
#include "cuda/tensor_attention.hpp"

namespace prun::cuda {
namespace {

using namespace tensor_attention_parts;

template <int width>
using Few = Form<width, 4, 2, width == 64 ? 32 : 16, 2, 1>;
template <int width>
using Many = Form<width, 4, 1, width == 64 ? 64 : 32, 2, 2>;

constexpr float log2_of_e = 1.44269504f;

// What both kinds of blocks have: where they are, and sums to hand over.
template <class Form>
struct Block {
  const AttentionBackward<bf16>& call;
  const int seq, first;  // position of the rows that it keeps
  const float scale;
  const Place<Form> place;
  SharedRows<Form::width> shared;  // the rows that it keeps

  __device__ Block(const AttentionBackward<bf16>& c, int position, bf16* memory)
      : call(c),
        seq(static_cast<int>(c.shape.seq)),
        first(position),
        scale(scale_of<float>(c.shape)),
        shared{memory} {}

  // Position of a thread's row.
  __device__ int row(int r) const { return first + place.strip + place.lane / 4 + 8 * r; }
  template <int rows>
  __device__ void copy(const Rows<const bf16>& from, int position, SharedRows<Form::width> to) const {
    copy_rows<rows, Form::width, Form::threads>(from, position, seq, to);
  }
  __device__ SharedRows<Form::width> rows_from(int row) const { return {shared.data + row * Form::width}; }
};

// ---------------------------------------------------------------- gradients of queries
template <class Form, bool apart>
struct QueryBlock : Block<Form> {
  using Base = Block<Form>;
  using Base::call, Base::seq, Base::first, Base::scale, Base::place, Base::row;
  const Unit unit;
  typename Form::Sums dq;
  Strip<Form::width> queries, dys;
  float lse[2], delta[2];  // lse to the power of two
  int first_keys[2];

  // Queries, dy and y, then tiles of keys and of values.
  static constexpr int kept_rows = 3 * Form::rows, stage_rows = 2 * Form::tile;
  using Hand = Handover<Form, 4 * Form::columns>;
  static constexpr int bytes = (kept_rows + Form::stages * stage_rows) * Form::width * 2;
  static_assert(Hand::bytes <= bytes);

  __device__ QueryBlock(const AttentionBackward<bf16>& c, unsigned index, int position, bf16* memory)
      : Base(c, position, memory), unit(c.shape, index) {
    clear(dq);
    const float* const statistics = call.lse + unit.statistics(call.shape);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      lse[r] = row(r) < seq ? log2_of_e * statistics[row(r)] : INFINITY;
      first_keys[r] = first_key<apart>(call, unit.batch, row(r));
    }
  }

  __device__ SharedRows<Form::width> keys(int number) const {
    return this->rows_from(kept_rows + number % Form::stages * stage_rows);
  }
  __device__ SharedRows<Form::width> values(int number) const {
    return {keys(number).data + Form::tile * Form::width};
  }
  __device__ void copy_tile(int number, int position) const {
    this->template copy<Form::tile>(rows_of(call.k, unit.batch, unit.head), position, keys(number));
    this->template copy<Form::tile>(rows_of(call.v, unit.batch, unit.head), position, values(number));
  }
  __device__ void copy_kept() const {
    this->template copy<Form::rows>(rows_of(call.q, unit, Form::width), first, this->shared);
    this->template copy<Form::rows>(rows_of(call.dy, unit, Form::width), first, this->rows_from(Form::rows));
    this->template copy<Form::rows>(rows_of(call.y, unit, Form::width), first,
                                    this->rows_from(2 * Form::rows));
  }
  __device__ void take_kept() {
    queries.load(this->shared, place.strip);
    dys.load(this->rows_from(Form::rows), place.strip);
    dot_same_rows(dys, this->rows_from(2 * Form::rows), place.strip, delta);
  }

  __device__ void meet(int number, int row_at, int key) {
    const int strip = first + place.strip, last = key + Form::inner - 1;
    if (key >= seq || (call.shape.causal && key > strip + 15)) return;
    typename Form::Scores scores, dweights;
    dot_rows(queries, keys(number), row_at, scores);
    dot_rows(dys, values(number), row_at, dweights);
    const bool some_hidden = apart || last >= seq || (call.shape.causal && last > strip);
#pragma unroll
    for (int i = 0; i < Form::inner / 8; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float weight = exp2_approximately(log2_of_e * scale * scores[i][e] - lse[e / 2]);
        scores[i][e] = weight * (dweights[i][e] - delta[e / 2]);
      }
    if (some_hidden) hide(key, scores);
    typename Form::Weights dscores;
    round_scores(scores, dscores);
    add_rows(dscores, keys(number), row_at, dq);
  }

  __device__ void hide(int key, typename Form::Scores& dscores) const {
#pragma unroll
    for (int i = 0; i < Form::inner / 8; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int at = key + 8 * i + place.lane % 4 * 2 + e % 2;
        const bool seen =
            at < seq && (!call.shape.causal || at <= row(e / 2)) && (!apart || at >= first_keys[e / 2]);
        if (!seen) dscores[i][e] = 0;
      }
  }

  __device__ void meet_all() {
    const int end = static_cast<int>(keys_end(call.shape, first + Form::rows - 1));
    const int begin = static_cast<int>(keys_begin<Form::tile, apart>(call, unit.batch, first));
    copy_kept();
#pragma unroll
    for (int ahead = 0; ahead < Form::stages - 1; ++ahead) {
      if (begin + ahead * Form::tile < end) copy_tile(ahead, begin + ahead * Form::tile);
      commit_copies();
    }
    for (int key = begin, number = 0; key < end; key += Form::tile, ++number) {
      wait_copies<Form::stages - 2>();
      __syncthreads();
      if (const int ahead = key + (Form::stages - 1) * Form::tile; ahead < end)
        copy_tile(number + Form::stages - 1, ahead);
      commit_copies();
      if (number == 0) take_kept();
      const int row_at = place.group * Form::inner;
      meet(number, row_at, key + row_at);
    }
  }

  __device__ void store_results() {
    if constexpr (Form::groups > 1) {
      const Hand hand{reinterpret_cast<float*>(this->shared.data)};
      __syncthreads();
      if (place.group > 0) hand.template leave<Form::columns>(place.group, dq, 0);
      __syncthreads();
      if (place.group > 0) return;
#pragma unroll
      for (int g = 1; g < Form::groups; ++g) hand.template add<Form::columns>(g, 1, 1, dq, 0);
    }
    store_strip(dq, {scale, scale}, rows_of(call.dq, unit, Form::width), first + place.strip, seq);
  }
};

// ---------------------------------------------------------------- gradients of keys and values
// A tile of queries of one of the heads that a head of keys serves.
struct QueryTile {
  int query, position;
};

template <class Form, bool apart>
struct KeyBlock : Block<Form> {
  using Base = Block<Form>;
  using Base::call, Base::seq, Base::first, Base::scale, Base::place, Base::row;
  const unsigned batch, head;
  typename Form::Sums dk, dv;
  Strip<Form::width> keys, values;
  int begin, end;  // of the positions that see the block

  // Keys and values, then tiles of queries, dy and y, and numbers of each query.
  static constexpr int kept_rows = 2 * Form::rows, stage_rows = 3 * Form::tile;
  static constexpr int all_rows = kept_rows + Form::stages * stage_rows;
  using Hand = Handover<Form, 8 * Form::columns>;
  static constexpr int bytes = all_rows * Form::width * 2 + (2 * Form::stages + 1) * Form::tile * 4;
  static_assert(Hand::bytes <= bytes && Form::tile <= 16 * Form::warps);

  __device__ KeyBlock(const AttentionBackward<bf16>& c, unsigned group, int position, bf16* memory)
      : Base(c, position, memory),
        batch(group / static_cast<unsigned>(c.shape.heads)),
        head(group - batch * static_cast<unsigned>(c.shape.heads)) {
    clear(dk), clear(dv);
    begin = call.shape.causal ? first / Form::tile * Form::tile : 0;
    end = apart ? end_of_readers() : seq;
  }

  // One past the tile of the last query that sees the block's last key. None but later queries see later
  // documents alone.
  __device__ int end_of_readers() const {
    const int last_key = min(first + Form::rows, seq) - 1;
    int in = begin / Form::tile, out = (seq + Form::tile - 1) / Form::tile;
    while (out - in > 1) {
      const int middle = (in + out) / 2;
      (first_key<apart>(call, batch, middle * Form::tile) <= last_key ? in : out) = middle;
    }
    return min(out * Form::tile, seq);
  }

  __device__ SharedRows<Form::width> queries(int number) const {
    return this->rows_from(kept_rows + number % Form::stages * stage_rows);
  }
  __device__ SharedRows<Form::width> dys(int number) const {
    return {queries(number).data + Form::tile * Form::width};
  }
  __device__ SharedRows<Form::width> ys(int number) const {
    return {queries(number).data + 2 * Form::tile * Form::width};
  }
  __device__ float* delta() const {
    return reinterpret_cast<float*>(this->shared.data + all_rows * Form::width);
  }
  __device__ float* lse(int number) const { return delta() + (1 + number % Form::stages) * Form::tile; }
  __device__ int* first_keys(int number) const {
    return reinterpret_cast<int*>(delta() + (1 + Form::stages + number % Form::stages) * Form::tile);
  }

  __device__ QueryTile after(QueryTile tile) const {
    tile.position += Form::tile;
    return tile.position < end ? tile : QueryTile{tile.query + 1, begin};
  }
  __device__ Unit unit_of(QueryTile tile) const { return {batch, head, static_cast<unsigned>(tile.query)}; }
  __device__ void copy_tile(int number, QueryTile tile) const {
    const Unit unit = unit_of(tile);
    this->template copy<Form::tile>(rows_of(call.q, unit, Form::width), tile.position, queries(number));
    this->template copy<Form::tile>(rows_of(call.dy, unit, Form::width), tile.position, dys(number));
    this->template copy<Form::tile>(rows_of(call.y, unit, Form::width), tile.position, ys(number));
    copy_numbers<Form::tile, Form::threads>(call.lse + unit.statistics(call.shape), tile.position, seq,
                                            INFINITY, lse(number));
    if constexpr (apart)
      copy_numbers<Form::tile, Form::threads>(call.documents + batch * call.shape.seq, tile.position, seq, 0,
                                              first_keys(number));
  }

  // Each row of dy . y of a tile, what the softmax's own gradient subtracts from each weight's.
  __device__ void take_delta(int number) const {
    const int own = 16 * place.warp;
    if (own >= Form::tile) return;
    Strip<Form::width> dy;
    dy.load(dys(number), own);
    float dots[2];
    dot_same_rows(dy, ys(number), own, dots);
    if (place.lane % 4 > 0) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) delta()[own + place.lane / 4 + 8 * r] = dots[r];
  }

  // Whether a query of this group's part of the tile sees one of the warp's keys.
  __device__ bool is_met(int position, int row_at, int number) const {
    const int strip = first + place.strip;
    if (position >= seq || (call.shape.causal && strip > position + Form::inner - 1)) return false;
    return !apart || first_keys(number)[row_at] <= strip + 15;
  }

  // The tile's weights, which are zero where the position is beyond seq: lse is infinite there.
  __device__ void weigh(int number, int row_at, int position, typename Form::Scores& weights) const {
    dot_rows(keys, queries(number), row_at, weights);
    const bool some_hidden = apart || (call.shape.causal && first + place.strip + 15 > position);
#pragma unroll
    for (int i = 0; i < Form::inner / 8; ++i) {
      const int column = 8 * i + place.lane % 4 * 2;
      const auto powers = load_lanes<2>(lse(number) + row_at + column);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        weights[i][e] = exp2_approximately(log2_of_e * scale * weights[i][e] - log2_of_e * powers[e % 2]);
      if (some_hidden) hide(number, row_at, position, i, weights[i]);
    }
  }

  __device__ void hide(int number, int row_at, int position, int i, float (&weights)[4]) const {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int column = 8 * i + place.lane % 4 * 2 + e % 2;
      const bool seen = (!call.shape.causal || row(e / 2) <= position + column) &&
                        (!apart || row(e / 2) >= first_keys(number)[row_at + column]);
      if (!seen) weights[e] = 0;
    }
  }

  __device__ void add_to_keys(int number, int row_at, const typename Form::Scores& weights,
                              typename Form::Scores& dweights) {
#pragma unroll
    for (int i = 0; i < Form::inner / 8; ++i) {
      const auto deltas = load_lanes<2>(delta() + row_at + 8 * i + place.lane % 4 * 2);
#pragma unroll
      for (int e = 0; e < 4; ++e) dweights[i][e] = weights[i][e] * (dweights[i][e] - deltas[e % 2]);
    }
    typename Form::Weights dscores;
    round_scores(dweights, dscores);
    add_rows(dscores, queries(number), row_at, dk);
  }

  __device__ void meet(int number, QueryTile tile) {
    const int row_at = place.group * Form::inner, position = tile.position + row_at;
    const bool met = is_met(position, row_at, number);
    typename Form::Scores weights, dweights;
    take_delta(number);
    if (met) {
      weigh(number, row_at, position, weights);
      typename Form::Weights rounded;
      round_scores(weights, rounded);
      add_rows(rounded, dys(number), row_at, dv);
      dot_rows(values, dys(number), row_at, dweights);
    }
    __syncthreads();
    if (met) add_to_keys(number, row_at, weights, dweights);
  }

  __device__ void meet_all() {
    this->template copy<Form::rows>(rows_of(call.k, batch, head), first, this->shared);
    this->template copy<Form::rows>(rows_of(call.v, batch, head), first, this->rows_from(Form::rows));
    const int heads = static_cast<int>(call.shape.queries);
    QueryTile tile{0, begin}, ahead = tile;
    const auto copy_ahead = [&](int number) {
      if (ahead.query < heads) copy_tile(number, ahead);
      commit_copies();
      ahead = after(ahead);
    };
#pragma unroll
    for (int number = 0; number < Form::stages - 1; ++number) copy_ahead(number);
    for (int number = 0; tile.query < heads; ++number, tile = after(tile)) {
      wait_copies<Form::stages - 2>();
      __syncthreads();
      copy_ahead(number + Form::stages - 1);
      if (number == 0) {
        keys.load(this->shared, place.strip);
        values.load(this->rows_from(Form::rows), place.strip);
      }
      meet(number, tile);
    }
  }

  __device__ void store_results() {
    if constexpr (Form::groups > 1) {
      const Hand hand{reinterpret_cast<float*>(this->shared.data)};
      __syncthreads();
      if (place.group > 0) {
        hand.template leave<Form::columns>(place.group, dk, 0);
        hand.template leave<Form::columns>(place.group, dv, 4 * Form::columns);
      }
      __syncthreads();
      if (place.group > 0) return;
#pragma unroll
      for (int g = 1; g < Form::groups; ++g) {
        hand.template add<Form::columns>(g, 1, 1, dk, 0);
        hand.template add<Form::columns>(g, 1, 1, dv, 4 * Form::columns);
      }
    }
    store_strip(dk, {scale, scale}, rows_of(call.dk, batch, head), first + place.strip, seq);
    store_strip(dv, {1, 1}, rows_of(call.dv, batch, head), first + place.strip, seq);
  }
};

// Blocks of keys come first, those that most queries see in front. Of those of queries the ones that see
// least come first where all blocks run at once: they share multiprocessors with the costliest.
template <class Form, bool apart>
__global__ __launch_bounds__(Form::threads, Form::blocks) void backward_kernel(
    const __grid_constant__ AttentionBackward<bf16> call, unsigned groups, int tiles, bool all_at_once) {
  extern __shared__ __align__(128) unsigned char memory[];
  bf16* const shared = reinterpret_cast<bf16*>(memory);
  const unsigned of_keys = groups * static_cast<unsigned>(tiles);
  if (blockIdx.x < of_keys) {
    const unsigned tile = blockIdx.x / groups;
    KeyBlock<Form, apart> block(call, blockIdx.x - tile * groups, static_cast<int>(tile) * Form::rows,
                                shared);
    block.meet_all();
    block.store_results();
  } else {
    const unsigned units = groups * static_cast<unsigned>(call.shape.queries);
    const unsigned index = blockIdx.x - of_keys, order = index / units;
    const int tile = all_at_once ? static_cast<int>(order) : tiles - 1 - static_cast<int>(order);
    QueryBlock<Form, apart> block(call, index - order * units, tile * Form::rows, shared);
    block.meet_all();
    block.store_results();
  }
}

// ---------------------------------------------------------------- the host's side
template <class Form, bool apart>
void launch_form(const AttentionBackward<bf16>& call, Stream stream) {
  const AttentionShape& shape = call.shape;
  const std::int64_t groups = shape.batch * shape.heads, tiles = ceil_div(shape.seq, Form::rows),
                     blocks = groups * tiles * (1 + shape.queries);
  const auto kernel = backward_kernel<Form, apart>;
  constexpr int bytes = std::max(KeyBlock<Form, apart>::bytes, QueryBlock<Form, apart>::bytes);
  allow_shared(kernel, bytes);
  const bool all_at_once = blocks <= Form::blocks * multiprocessors();
  kernel<<<grid_of(blocks), Form::threads, bytes, stream>>>(call, static_cast<unsigned>(groups),
                                                            static_cast<int>(tiles), all_at_once);
}

template <int width>
void launch_width(const AttentionBackward<bf16>& call, AttentionForm form, Stream stream) {
  const bool few = form == AttentionForm::few;
  if (call.documents)
    few ? launch_form<Few<width>, true>(call, stream) : launch_form<Many<width>, true>(call, stream);
  else
    few ? launch_form<Few<width>, false>(call, stream) : launch_form<Many<width>, false>(call, stream);
}

}  // namespace

bool tensor_attention_takes(const AttentionBackward<bf16>& call) {
  return takes_shape(call.shape) &&
         packs<bf16>(call.shape, call.dy, call.q, call.k, call.v, call.y, call.dq, call.dk, call.dv);
}

void tensor_attention_backward(const AttentionBackward<bf16>& call, AttentionForm form, Stream stream) {
  PRUN_CHECK(tensor_attention_takes(call), "attention on tensor cores cannot take this call");
  if (call.shape.query_rows() == 0) return;
  if (call.shape.head_dim == 64)
    launch_width<64>(call, form, stream);
  else
    launch_width<128>(call, form, stream);
  check_launch("attention_backward");
}

}  // namespace prun::cuda
