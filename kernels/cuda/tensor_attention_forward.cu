// Scores exist for the tile of keys that is being met alone: a group of warps keeps a running maximum and sum
// of each query over its part of the keys, and at the end the groups' results are brought to one maximum.
#include <cmath>

#include "cuda/math.cuh"
#include "cuda/tensor_attention.cuh"
#include "cuda/tensor_attention.hpp"

namespace prun::cuda {
namespace {

using namespace tensor_attention_parts;

template <int width>
using Few = Form<width, 2, 4, width == 64 ? 32 : 16, 2, width == 64 ? 2 : 1>;
template <int width>
using Many = Form<width, 4, 2, width == 64 ? 64 : 32, 2, width == 64 ? 2 : 1>;

constexpr float log2_of_e = 1.44269504f;

// The softmax of a thread's two rows, as far as keys were folded in; of the sum, what its own columns add.
template <class Form>
struct Softmax {
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};

  // Turns scores into weights relative to the new maximum; what the result held shrinks to match. `scale`
  // leads from scores to powers of two.
  __device__ void fold(float scale, typename Form::Scores& scores, typename Form::Sums& result) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = largest[r];
#pragma unroll
      for (int i = 0; i < Form::inner / 8; ++i)
        top = Larger()(top, Larger()(scores[i][2 * r], scores[i][2 * r + 1]));
      top = quad_fold(top, Larger());
      const float base = top == -INFINITY ? 0.0f : scale * top;  // a row that has seen nothing yet
      const float shrink = exp2_approximately(scale * largest[r] - base);
      largest[r] = top;
      sum[r] *= shrink;
#pragma unroll
      for (int i = 0; i < Form::inner / 8; ++i)
#pragma unroll
        for (int e = 2 * r; e < 2 * r + 2; ++e)
          sum[r] += scores[i][e] = exp2_approximately(scale * scores[i][e] - base);
#pragma unroll
      for (int c = 0; c < Form::columns; ++c) result[c][2 * r] *= shrink, result[c][2 * r + 1] *= shrink;
    }
  }
};

// What one block computes: a tile of one head's queries.
template <class Form, bool apart>
struct Forward {
  const AttentionForward<bf16>& call;
  const Unit unit;
  const int seq, first;  // position of the tile
  const Place<Form> place;
  SharedRows<Form::width> shared;
  Softmax<Form> softmax;
  typename Form::Sums result;
  int first_keys[2];  // that the thread's rows see

  static constexpr int stage_rows = 2 * Form::tile;
  using Hand = Handover<Form, 4 * Form::columns + 4>;
  static constexpr int bytes = (Form::rows + Form::stages * stage_rows) * Form::width * 2;
  static_assert(Hand::bytes <= bytes);

  __device__ Forward(const AttentionForward<bf16>& c, unsigned index, int position, bf16* memory)
      : call(c), unit(c.shape, index), seq(static_cast<int>(c.shape.seq)), first(position), shared{memory} {
    clear(result);
#pragma unroll
    for (int r = 0; r < 2; ++r) first_keys[r] = first_key<apart>(call, unit.batch, row(r));
  }

  // Position of a thread's row.
  __device__ int row(int r) const { return first + place.strip + place.lane / 4 + 8 * r; }
  __device__ SharedRows<Form::width> keys(int number) const {
    return {shared.data + (Form::rows + number % Form::stages * stage_rows) * Form::width};
  }
  __device__ SharedRows<Form::width> values(int number) const {
    return {keys(number).data + Form::tile * Form::width};
  }

  __device__ void copy_tile(int number, int position) const {
    copy_rows<Form::tile, Form::width, Form::threads>(rows_of(call.k, unit.batch, unit.head), position, seq,
                                                      keys(number));
    copy_rows<Form::tile, Form::width, Form::threads>(rows_of(call.v, unit.batch, unit.head), position, seq,
                                                      values(number));
  }

  // Keys [key, key + inner), which lie in a tile from `row_at` on.
  __device__ void meet(const Strip<Form::width>& queries, int number, int row_at, int key, float scale) {
    const int strip = first + place.strip;
    if (key >= seq || (call.shape.causal && key > strip + 15)) return;
    typename Form::Scores scores;
    dot_rows(queries, keys(number), row_at, scores);
    const int last = key + Form::inner - 1;
    if (apart || last >= seq || (call.shape.causal && last > strip)) hide(key, scores);
    softmax.fold(scale, scores, result);
    typename Form::Weights weights;
    round_scores(scores, weights);
    add_rows(weights, values(number), row_at, result);
  }

  __device__ void hide(int key, typename Form::Scores& scores) const {
#pragma unroll
    for (int i = 0; i < Form::inner / 8; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int at = key + 8 * i + place.lane % 4 * 2 + e % 2;
        const bool seen =
            at < seq && (!call.shape.causal || at <= row(e / 2)) && (!apart || at >= first_keys[e / 2]);
        if (!seen) scores[i][e] = -INFINITY;
      }
  }

  __device__ void meet_all(float scale) {
    const int end = static_cast<int>(keys_end(call.shape, first + Form::rows - 1));
    const int begin = static_cast<int>(keys_begin<Form::tile, apart>(call, unit.batch, first));
    copy_rows<Form::rows, Form::width, Form::threads>(rows_of(call.q, unit, Form::width), first, seq, shared);
#pragma unroll
    for (int ahead = 0; ahead < Form::stages - 1; ++ahead) {
      if (begin + ahead * Form::tile < end) copy_tile(ahead, begin + ahead * Form::tile);
      commit_copies();
    }
    Strip<Form::width> queries;
    for (int key = begin, number = 0; key < end; key += Form::tile, ++number) {
      wait_copies<Form::stages - 2>();
      __syncthreads();
      if (const int ahead = key + (Form::stages - 1) * Form::tile; ahead < end)
        copy_tile(number + Form::stages - 1, ahead);
      commit_copies();
      if (number == 0) queries.load(shared, place.strip);
      const int row_at = place.group * Form::inner;
      meet(queries, number, row_at, key + row_at, scale);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) softmax.sum[r] = quad_fold(softmax.sum[r], Add());
  }

  // In the first group's threads.
  __device__ void join_groups(float scale) {
    const Hand hand{reinterpret_cast<float*>(shared.data)};
    constexpr int statistics = 4 * Form::columns;
    __syncthreads();
    if (place.group > 0) {
      hand.template leave<Form::columns>(place.group, result, 0);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        *hand.of(place.group, statistics + r) = softmax.largest[r];
        *hand.of(place.group, statistics + 2 + r) = softmax.sum[r];
      }
    }
    __syncthreads();
    if (place.group > 0) return;
    float top[2] = {softmax.largest[0], softmax.largest[1]};
#pragma unroll
    for (int g = 1; g < Form::groups; ++g)
#pragma unroll
      for (int r = 0; r < 2; ++r) top[r] = Larger()(top[r], *hand.of(g, statistics + r));
    shrink(scale, top);
#pragma unroll
    for (int g = 1; g < Form::groups; ++g) {
      float factor[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        factor[r] = exp2_approximately(scale * (*hand.of(g, statistics + r) - top[r]));
        softmax.sum[r] += factor[r] * *hand.of(g, statistics + 2 + r);
      }
      hand.template add<Form::columns>(g, factor[0], factor[1], result, 0);
    }
  }

  __device__ void shrink(float scale, const float (&top)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float factor = exp2_approximately(scale * (softmax.largest[r] - top[r]));
      softmax.largest[r] = top[r];
      softmax.sum[r] *= factor;
#pragma unroll
      for (int c = 0; c < Form::columns; ++c) result[c][2 * r] *= factor, result[c][2 * r + 1] *= factor;
    }
  }

  __device__ void store_results(float scale) const {
    const float factors[2] = {1 / softmax.sum[0], 1 / softmax.sum[1]};
    store_strip(result, factors, rows_of(call.y, unit, Form::width), first + place.strip, seq);
    if (place.lane % 4 > 0) return;
    float* const lse = call.lse + unit.statistics(call.shape);
#pragma unroll
    for (int r = 0; r < 2; ++r)
      if (row(r) < seq) lse[row(r)] = scale * softmax.largest[r] + logf(softmax.sum[r]);
  }
};

// The blocks that take longest begin first. Where all run at once, they are paired with those that are done
// soonest, which share their multiprocessors.
__device__ int tile_of(int order, int tiles, bool all_at_once) {
  const int half = (tiles + 1) / 2;
  return all_at_once && order >= half ? order - half : tiles - 1 - order;
}

template <class Form, bool apart>
__global__ __launch_bounds__(Form::threads, Form::blocks) void forward_kernel(
    const __grid_constant__ AttentionForward<bf16> call, unsigned units, int tiles, bool all_at_once) {
  extern __shared__ __align__(128) unsigned char memory[];
  const unsigned order = blockIdx.x / units;
  const int first = tile_of(static_cast<int>(order), tiles, all_at_once) * Form::rows;
  Forward<Form, apart> block(call, blockIdx.x - order * units, first, reinterpret_cast<bf16*>(memory));
  const float scale = scale_of<float>(call.shape);
  block.meet_all(log2_of_e * scale);
  if constexpr (Form::groups > 1) block.join_groups(log2_of_e * scale);
  if (block.place.group == 0) block.store_results(scale);
}

// ---------------------------------------------------------------- the host's side
template <class Form, bool apart>
void launch_form(const AttentionForward<bf16>& call, Stream stream) {
  const AttentionShape& shape = call.shape;
  const std::int64_t units = shape.batch * shape.heads * shape.queries,
                     tiles = ceil_div(shape.seq, Form::rows);
  const auto kernel = forward_kernel<Form, apart>;
  constexpr int bytes = Forward<Form, apart>::bytes;
  allow_shared(kernel, bytes);
  const bool all_at_once = units * tiles <= Form::blocks * multiprocessors();
  kernel<<<grid_of(units * tiles), Form::threads, bytes, stream>>>(call, static_cast<unsigned>(units),
                                                                   static_cast<int>(tiles), all_at_once);
}

template <int width>
void launch_width(const AttentionForward<bf16>& call, AttentionForm form, Stream stream) {
  const bool few = form == AttentionForm::few;
  if (call.documents)
    few ? launch_form<Few<width>, true>(call, stream) : launch_form<Many<width>, true>(call, stream);
  else
    few ? launch_form<Few<width>, false>(call, stream) : launch_form<Many<width>, false>(call, stream);
}

}  // namespace

AttentionForm attention_form(const AttentionShape& shape) {
  const std::int64_t blocks = shape.batch * shape.heads * shape.queries * ceil_div(shape.seq, 64);
  return blocks < 4 * multiprocessors() ? AttentionForm::few : AttentionForm::many;
}

bool tensor_attention_takes(const AttentionForward<bf16>& call) {
  return takes_shape(call.shape) && packs<bf16>(call.shape, call.q, call.k, call.v, call.y);
}

void tensor_attention(const AttentionForward<bf16>& call, AttentionForm form, Stream stream) {
  PRUN_CHECK(tensor_attention_takes(call), "attention on tensor cores cannot take this call");
  if (call.shape.query_rows() == 0) return;
  if (call.shape.head_dim == 64)
    launch_width<64>(call, form, stream);
  else
    launch_width<128>(call, form, stream);
  check_launch("attention");
}

}  // namespace prun::cuda
