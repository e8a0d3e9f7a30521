// Computes scores of one tile of keys at a time: a group of warps keeps a running maximum and sum of each
// query over its part of the keys, and at the end the groups' results are brought to one maximum.
#include <cmath>

#include "attention/cuda_tensor.cuh"
#include "attention/cuda_tensor.hpp"
#include "cuda/math.cuh"

namespace prun::cuda {
namespace {

using namespace tensor_attention_parts;

template <class T, int width>
using Few = Form<T, width, 2, 4, width == 64 ? 32 : 16, 2, width == 64 ? 2 : 1>;
template <class T, int width>
using Many = Form<T, width, 4, 2, width == 64 ? 64 : 32, 2, width == 64 ? 2 : 1>;

constexpr float log2_of_e = 1.44269504f;

// Holds the softmax of a thread's two rows, over the keys folded in so far; `sum` has its own columns alone.
template <class Form>
struct Softmax {
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};

  // Turns scores into weights relative to the new maximum; the result so far shrinks to match. `scale` leads
  // from scores to powers of two.
  __device__ void fold(float scale, typename Form::Scores& scores, typename Form::Sums& result) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = largest[r];
#pragma unroll
      for (int i = 0; i < Form::inner / 8; ++i)
        top = Larger()(top, Larger()(scores[i][2 * r], scores[i][2 * r + 1]));
      top = quad_fold(top, Larger());
      const float base = top == -INFINITY ? 0.0f : scale * top;  // serves a row that has seen nothing yet
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

// Computes a tile of one head's queries, as one block does.
template <class Form, bool late, bool biased>
struct Forward {
  using T = typename Form::Value;
  using Shared = SharedRows<Form::width, T>;
  const AttentionForward<T>& call;
  const Biases<float>& biases;
  const Unit unit;
  const int seq, first;  // first is the place of the tile among queries
  const int front;       // keys in front of the first query's own
  const Place<Form> place;
  Shared shared;
  Softmax<Form> softmax;
  typename Form::Sums result;
  int first_keys[2],
      keys_seen[2];  // the first key that each of the thread's rows sees, and the end of those

  // Memory holds queries, then tiles of keys and of values; at the end the groups' sums. Behind it lies each
  // row's softmax in each group.
  static constexpr int stage_rows = 2 * Form::tile;
  static constexpr int memory_bytes =
      std::max((Form::rows + Form::stages * stage_rows) * Form::width * 2, GroupSums<Form>::bytes);
  static constexpr int bytes = memory_bytes + Form::groups * Form::rows * 8;

  __device__ Forward(const AttentionForward<T>& c, const Biases<float>& b, const Unit& of, int position,
                     unsigned char* memory)
      : call(c),
        biases(b),
        unit(of),
        seq(static_cast<int>(c.shape.seq)),
        first(position),
        front(keys_ahead<late>(c.shape)),
        shared{reinterpret_cast<T*>(memory)} {
    clear(result);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      first_keys[r] = first_key<late>(call, unit.batch, row(r));
      keys_seen[r] = end_of_keys<late>(call.shape, row(r));
    }
  }

  // Leads from the numbers that softmax folds in to scores: with biases they are scores already.
  static constexpr float scale = biased ? 1.0f : Form::scale;

  // Returns the place of a thread's row.
  __device__ int row(int r) const { return first + place.strip + place.row + 8 * r; }
  __device__ int all_keys() const { return static_cast<int>(call.shape.keys); }
  __device__ Shared keys(unsigned number) const {
    return {shared.data + (Form::rows + static_cast<int>(number % Form::stages) * stage_rows) * Form::width};
  }
  __device__ Shared values(unsigned number) const { return {keys(number).data + Form::tile * Form::width}; }

  // Meets keys [key, key + inner), which lie in a tile from `row_at` on.
  __device__ void meet(const Strip<Form::width, T>& queries, unsigned number, int row_at, int key) {
    const int strip = front + first + place.strip;
    if (key >= all_keys() || (call.shape.causal && key > strip + 15)) return;
    if (late && is_out_of_reach(call.shape, strip, key + Form::inner - 1)) return;
    typename Form::Scores scores;
    dot_rows(queries, keys(number), row_at, scores);
    if constexpr (biased) add_biases(biases, unit.head, key + place.column - row(0), scores);
    const int last = key + Form::inner - 1;
    const bool cut = late && (call.documents || is_out_of_reach(call.shape, strip + 15, key));
    if (cut || last >= all_keys() || (call.shape.causal && last > strip)) hide(key, scores);
    softmax.fold(log2_of_e * scale, scores, result);
    typename Form::Weights weights;
    round_scores<T>(scores, weights);
    add_rows(weights, values(number), row_at, result);
  }

  __device__ void hide(int key, typename Form::Scores& scores) const {
#pragma unroll
    for (int i = 0; i < Form::inner / 8; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int at = key + 8 * i + place.column + e % 2;
        const bool seen = at < keys_seen[e / 2] && (!late || at >= first_keys[e / 2]);
        if (!seen) scores[i][e] = -INFINITY;
      }
  }

  __device__ void meet_all() {
    const int end = end_of_keys<late>(call.shape, first + Form::rows - 1);
    const int begin = static_cast<int>(keys_begin<Form::tile, late>(call, unit.batch, first));
    const Source<Form> from_keys(rows_of(call.k, unit.batch, unit.head)),
        from_values(rows_of(call.v, unit.batch, unit.head));
    const auto copy_tile = [&](unsigned number) {
      if (const int position = begin + static_cast<int>(number) * Form::tile; position < end) {
        from_keys.template copy<Form::tile>(position, all_keys(), keys(number));
        from_values.template copy<Form::tile>(position, all_keys(), values(number));
      }
      commit_copies();
    };
    Source<Form>(rows_of(call.q, unit, Form::width)).template copy<Form::rows>(first, seq, shared);
#pragma unroll
    for (unsigned ahead = 0; ahead + 1 < Form::stages; ++ahead) copy_tile(ahead);
    Strip<Form::width, T> queries;
#pragma unroll 1
    for (unsigned number = 0; begin + static_cast<int>(number) * Form::tile < end; ++number) {
      wait_copies<Form::stages - 2>();
      __syncthreads();
      copy_tile(number + Form::stages - 1);
      if (number == 0) queries.load(shared, place.strip);
      const int row_at = place.group * Form::inner;
      meet(queries, number, row_at, begin + static_cast<int>(number) * Form::tile + row_at);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) softmax.sum[r] = quad_fold(softmax.sum[r], Add());
  }

  // Brings all groups to one maximum, and stores their sum over what all weights add up to.
  __device__ void store_results() const {
    constexpr float power = log2_of_e * scale;
    const GroupSums<Form> sums{reinterpret_cast<float*>(shared.data)};
    float* const statistics = sums.memory + memory_bytes / 4;
    const auto of = [&](int group, int r) {
      return statistics + 2 * (group * Form::rows + place.strip + place.row + 8 * r);
    };
#pragma unroll
    for (int r = 0; r < 2; ++r)
      if (place.column == 0)
        store_lanes(of(place.group, r), Lanes<float, 2>{{softmax.largest[r], softmax.sum[r]}});
    __syncthreads();
    float factors[2];
    float* const lse = call.lse + unit.statistics(call.shape);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = -INFINITY, sum = 0;
#pragma unroll
      for (int g = 0; g < Form::groups; ++g) top = Larger()(top, *of(g, r));
#pragma unroll
      for (int g = 0; g < Form::groups; ++g) {
        const auto one = load_lanes<2>(of(g, r));
        sum += exp2_approximately(power * (one[0] - top)) * one[1];
      }
      factors[r] = exp2_approximately(power * (softmax.largest[r] - top)) * inverse(sum);
      if (place.group == 0 && place.column == 0 && row(r) < seq) lse[row(r)] = scale * top + logf(sum);
    }
    sums.put(place, result, factors);
    __syncthreads();
    sums.store(rows_of(call.y, unit, Form::width), first, seq);
  }
};

// The blocks that take longest begin first. Where all run at once, they are paired with those that are done
// soonest, which share their multiprocessors.
__device__ inline int tile_of(int order, int tiles, bool all_at_once) {
  const int half = (tiles + 1) / 2;
  return all_at_once && order >= half ? order - half : tiles - 1 - order;
}

// The grid is of heads, samples, and tiles of the heads' queries.
template <class Form, bool late, bool biased>
__global__ __launch_bounds__(Form::threads, Form::blocks) void forward_kernel(
    const __grid_constant__ AttentionForward<typename Form::Value> call,
    const __grid_constant__ Biases<float> biases, int tiles, bool all_at_once) {
  extern __shared__ __align__(128) unsigned char memory[];
  const auto queries = static_cast<unsigned>(call.shape.queries);
  const unsigned order = queries == 1 ? blockIdx.z : blockIdx.z / queries;
  const Unit unit(blockIdx.y, blockIdx.x, blockIdx.z - order * queries);
  const int tile = tile_of(static_cast<int>(order), tiles, all_at_once);
  Forward<Form, late, biased> block(call, biases, unit, tile * Form::rows, memory);
  block.meet_all();
  block.store_results();
}

// ---------------------------------------------------------------- the host's side
template <class Form, bool late, bool biased>
void launch_form(const AttentionForward<typename Form::Value>& call, const Biases<float>& biases,
                 Stream stream) {
  const AttentionShape& shape = call.shape;
  const auto tiles = static_cast<int>(ceil_div(shape.seq, Form::rows));
  const dim3 grid(grid_of(shape.heads), grid_of(shape.batch), grid_of(tiles * shape.queries));
  const auto kernel = forward_kernel<Form, late, biased>;
  constexpr int bytes = Forward<Form, late, biased>::bytes;
  allow_shared(kernel, bytes);
  const bool all_at_once = shape.batch * shape.heads * grid.z <= Form::blocks * multiprocessors();
  kernel<<<grid, Form::threads, bytes, stream>>>(with_keys(call), biases, tiles, all_at_once);
}

template <int width, bool late, bool biased, class T>
void launch_width(const AttentionForward<T>& call, AttentionForm form, const Biases<float>& biases,
                  Stream stream) {
  if (form == AttentionForm::few)
    launch_form<Few<T, width>, late, biased>(call, biases, stream);
  else
    launch_form<Many<T, width>, late, biased>(call, biases, stream);
}

template <int width, class T>
void launch(const AttentionForward<T>& call, AttentionForm form, const Biases<float>& biases, Stream stream) {
  if (biases.of)
    launch_width<width, false, true>(call, form, biases, stream);
  else if (begins_late(call))
    launch_width<width, true, false>(call, form, biases, stream);
  else
    launch_width<width, false, false>(call, form, biases, stream);
}

}  // namespace

AttentionForm attention_form(const AttentionShape& shape) {
  const std::int64_t blocks = shape.batch * shape.heads * shape.queries * ceil_div(shape.seq, 64);
  return 2 * blocks < 3 * multiprocessors() ? AttentionForm::few : AttentionForm::many;
}

template <class T>
bool tensor_attention_takes(const AttentionForward<T>& call) {
  return is_half<T> && takes_shape(call.shape) && packs<T>(call.shape, call.q, call.k, call.v, call.y);
}

template <class T>
void tensor_attention(const AttentionForward<T>& call, AttentionForm form, Stream stream,
                      const Biases<float>& biases) {
  PRUN_CHECK(tensor_attention_takes(call), "attention on tensor cores cannot take this call");
  if (call.shape.query_rows() == 0) return;
  if (call.shape.head_dim == 64)
    launch<64>(call, form, biases, stream);
  else
    launch<128>(call, form, biases, stream);
  check_launch("attention");
}

template bool tensor_attention_takes(const AttentionForward<double>&);
template bool tensor_attention_takes(const AttentionForward<float>&);
template bool tensor_attention_takes(const AttentionForward<bf16>&);
template bool tensor_attention_takes(const AttentionForward<f16>&);
template void tensor_attention(const AttentionForward<bf16>&, AttentionForm, Stream, const Biases<float>&);
template void tensor_attention(const AttentionForward<f16>&, AttentionForm, Stream, const Biases<float>&);

}  // namespace prun::cuda
