// Computes the weights again from lse, twice: in blocks that keep a tile of keys and values and meet all
// queries that see it, and in blocks that keep a tile of queries and meet the keys that these see. So no sum
// is added up by several blocks, and no block waits for another. The weights of keys lie [key, query]: as a
// product leaves them, they are the next one's left factor.
#include <cmath>

#include "attention/cuda_bucket_sums.cuh"
#include "attention/cuda_tensor.cuh"
#include "attention/cuda_tensor.hpp"
#include "cuda/math.cuh"

namespace prun::cuda {
namespace {

using namespace tensor_attention_parts;

template <class T, int width>
using Few = Form<T, width, 4, 2, width == 64 ? 32 : 16, 2, 1>;
template <class T, int width>
using Many = Form<T, width, 4, 1, width == 64 ? 64 : 32, 2, 2>;

constexpr float log2_of_e = 1.44269504f;

// Holds what both kinds of blocks have.
template <class Form, bool late>
struct Block {
  using T = typename Form::Value;
  using Shared = SharedRows<Form::width, T>;
  const AttentionBackward<T>& call;
  const int seq, front;   // counts queries, and keys in front of the first query's own
  const int first, rows;  // the place of the rows that it keeps, among so many queries or keys
  const Place<Form> place;
  Shared shared;  // has the rows that it keeps

  __device__ Block(const AttentionBackward<T>& c, int position, bool of_keys, unsigned char* memory)
      : call(c),
        seq(static_cast<int>(c.shape.seq)),
        front(keys_ahead<late>(c.shape)),
        first(position),
        rows(of_keys ? all_keys() : seq),
        shared{reinterpret_cast<T*>(memory)} {}

  __device__ int all_keys() const { return static_cast<int>(call.shape.keys); }
  // Returns the place of a thread's row.
  __device__ int row(int r) const { return first + place.strip + place.row + 8 * r; }
  __device__ Shared rows_from(int row) const { return {shared.data + row * Form::width}; }
  // Copies its rows of an operand to those from `row` on.
  __device__ void keep(const Rows<const T>& from, int row) const {
    Source<Form>(from).template copy<Form::rows>(first, rows, rows_from(row));
  }
  // Stores factor x sums over the groups, when no warp needs tiles any more.
  __device__ void store(const typename Form::Sums& sums, float factor, const Rows<T>& to) const {
    const GroupSums<Form> groups{reinterpret_cast<float*>(shared.data)};
    __syncthreads();
    groups.put(place, sums, {factor, factor});
    __syncthreads();
    groups.store(to, first, rows);
  }
};

// ---------------------------------------------------------------- gradients of queries
template <class Form, bool late, bool biased>
struct QueryBlock : Block<Form, late> {
  using Base = Block<Form, late>;
  using Base::call, Base::seq, Base::all_keys, Base::front, Base::first, Base::place, Base::row;
  using typename Base::Shared, typename Base::T;
  const Biases<float>& biases;
  const TableParts& table;
  const Unit unit;
  typename Form::Sums dq;
  Strip<Form::width, T> queries, dys;
  float lse[2], delta[2];  // lse is a power of two
  int first_keys[2],
      keys_seen[2];  // the first key that each of the thread's rows sees, and the end of those

  // Memory holds queries, dy and y, then tiles of keys and of values; at the end the groups' sums. Behind
  // them, with biases, it holds each warp's sums by bucket.
  static constexpr int kept_rows = 3 * Form::rows, stage_rows = 2 * Form::tile;
  static constexpr int memory_bytes =
      std::max((kept_rows + Form::stages * stage_rows) * Form::width * 2, GroupSums<Form>::bytes);
  static constexpr int bytes = memory_bytes + (biased ? WarpBuckets<Form>::bytes : 0);

  __device__ QueryBlock(const AttentionBackward<T>& c, const Biases<float>& b, const TableParts& t,
                        const Unit& of, int position, unsigned char* memory)
      : Base(c, position, false, memory), biases(b), table(t), unit(of) {
    clear(dq);
    if constexpr (biased) buckets().clear(table.bounds, place.lane);
    const float* const statistics = call.lse + unit.statistics(call.shape);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      lse[r] = row(r) < seq ? log2_of_e * statistics[row(r)] : INFINITY;
      first_keys[r] = first_key<late>(call, unit.batch, row(r));
      keys_seen[r] = end_of_keys<late>(call.shape, row(r));
    }
  }

  __device__ float* buckets_memory() const {
    return reinterpret_cast<float*>(this->shared.data) + memory_bytes / 4;
  }
  __device__ WarpBuckets<Form> buckets() const { return {buckets_memory(), place.warp}; }
  __device__ Shared keys(unsigned number) const {
    return this->rows_from(kept_rows + static_cast<int>(number % Form::stages) * stage_rows);
  }
  __device__ Shared values(unsigned number) const { return {keys(number).data + Form::tile * Form::width}; }
  __device__ void take_kept() {
    queries.load(this->shared, place.strip);
    dys.load(this->rows_from(Form::rows), place.strip);
    dot_same_rows(dys, this->rows_from(2 * Form::rows), place.strip, delta);
  }

  // Meets keys [key, key + inner), which lie in a tile from `row_at` on.
  __device__ void meet(unsigned number, int row_at, int key) {
    const int strip = front + first + place.strip, last = key + Form::inner - 1;
    if (key >= all_keys() || (call.shape.causal && key > strip + 15)) return;
    if (late && is_out_of_reach(call.shape, strip, last)) return;
    typename Form::Scores scores, dweights;
    dot_rows(queries, keys(number), row_at, scores);
    dot_rows(dys, values(number), row_at, dweights);
    if constexpr (biased) add_biases(biases, unit.head, key + place.column - row(0), scores);
    constexpr float scale = biased ? 1.0f : Form::scale;
#pragma unroll
    for (int i = 0; i < Form::inner / 8; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float weight = exp2_approximately(log2_of_e * scale * scores[i][e] - lse[e / 2]);
        scores[i][e] = weight * (dweights[i][e] - delta[e / 2]);
      }
    const bool cut = late && (call.documents || is_out_of_reach(call.shape, strip + 15, key));
    if (cut || last >= all_keys() || (call.shape.causal && last > strip)) hide(key, scores);
    if constexpr (biased) buckets().add(place, table.bounds, key - strip, scores);
    typename Form::Weights dscores;
    round_scores<T>(scores, dscores);
    add_rows(dscores, keys(number), row_at, dq);
  }

  __device__ void hide(int key, typename Form::Scores& dscores) const {
#pragma unroll
    for (int i = 0; i < Form::inner / 8; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int at = key + 8 * i + place.column + e % 2;
        const bool seen = at < keys_seen[e / 2] && (!late || at >= first_keys[e / 2]);
        if (!seen) dscores[i][e] = 0;
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
    this->keep(rows_of(call.q, unit, Form::width), 0);
    this->keep(rows_of(call.dy, unit, Form::width), Form::rows);
    this->keep(rows_of(call.y, unit, Form::width), 2 * Form::rows);
#pragma unroll
    for (unsigned ahead = 0; ahead + 1 < Form::stages; ++ahead) copy_tile(ahead);
#pragma unroll 1
    for (unsigned number = 0; begin + static_cast<int>(number) * Form::tile < end; ++number) {
      wait_copies<Form::stages - 2>();
      __syncthreads();
      copy_tile(number + Form::stages - 1);
      if (number == 0) take_kept();
      const int row_at = place.group * Form::inner;
      meet(number, row_at, begin + static_cast<int>(number) * Form::tile + row_at);
    }
  }

  // `number` is the block's among those of queries.
  __device__ void store_results(std::int64_t number) const {
    this->store(dq, biased ? biases.scale : Form::scale, rows_of(call.dq, unit, Form::width));
    if constexpr (biased)
      store_buckets<Form>(buckets_memory(), table.bounds.count, table.parts + number * table.bounds.count);
  }
};

// ---------------------------------------------------------------- gradients of keys and values
// Is a tile of queries of one of the heads that a head of keys serves.
struct QueryTile {
  int query, position;
};

template <class Form, bool late, bool biased>
struct KeyBlock : Block<Form, late> {
  using Base = Block<Form, late>;
  using Base::call, Base::seq, Base::all_keys, Base::front, Base::first, Base::place, Base::row;
  using typename Base::Shared, typename Base::T;
  const Biases<float>& biases;
  const unsigned batch, head;
  typename Form::Sums dk, dv;
  Strip<Form::width, T> keys, values;
  int begin, end;  // the places of queries that see the block

  // Memory holds keys and values, then tiles of queries, dy and y, and numbers of each query; at the end the
  // groups' sums.
  static constexpr int kept_rows = 2 * Form::rows, stage_rows = 3 * Form::tile;
  static constexpr int all_rows = kept_rows + Form::stages * stage_rows;
  static constexpr int bytes =
      std::max(all_rows * Form::width * 2 + (2 * Form::stages + 1) * Form::tile * 4, GroupSums<Form>::bytes);
  static_assert(Form::tile <= 16 * Form::warps);

  __device__ KeyBlock(const AttentionBackward<T>& c, const Biases<float>& b, unsigned of_batch,
                      unsigned of_heads, int position, unsigned char* memory)
      : Base(c, position, true, memory), biases(b), batch(of_batch), head(of_heads) {
    clear(dk), clear(dv);
    begin = call.shape.causal ? max(first - front, 0) / Form::tile * Form::tile : 0;
    end = late ? end_of_readers() : seq;
  }

  // Returns the end of the tile of the last query that sees the block's last key. Later queries begin at
  // later keys.
  __device__ int end_of_readers() const {
    const int last_key = min(first + Form::rows, all_keys()) - 1;
    int in = begin / Form::tile, out = (seq + Form::tile - 1) / Form::tile;
    while (out - in > 1) {
      const int middle = (in + out) / 2;
      (first_key<late>(call, batch, middle * Form::tile) <= last_key ? in : out) = middle;
    }
    return min(out * Form::tile, seq);
  }

  __device__ Shared queries(unsigned number) const {
    return this->rows_from(kept_rows + static_cast<int>(number % Form::stages) * stage_rows);
  }
  __device__ Shared dys(unsigned number) const { return {queries(number).data + Form::tile * Form::width}; }
  __device__ Shared ys(unsigned number) const {
    return {queries(number).data + 2 * Form::tile * Form::width};
  }
  __device__ float* delta() const {
    return reinterpret_cast<float*>(this->shared.data + all_rows * Form::width);
  }
  __device__ float* lse(unsigned number) const {
    return delta() + (1 + static_cast<int>(number % Form::stages)) * Form::tile;
  }
  __device__ int* first_keys(unsigned number) const {
    return reinterpret_cast<int*>(delta() +
                                  (1 + Form::stages + static_cast<int>(number % Form::stages)) * Form::tile);
  }

  __device__ QueryTile after(QueryTile tile) const {
    tile.position += Form::tile;
    return tile.position < end ? tile : QueryTile{tile.query + 1, begin};
  }
  __device__ void copy_tile(unsigned number, QueryTile tile) const {
    const Unit unit(batch, head, static_cast<unsigned>(tile.query));
    const auto copy = [&](const Heads<const T>& heads, Shared to) {
      Source<Form>(rows_of(heads, unit, Form::width)).template copy<Form::tile>(tile.position, seq, to);
    };
    copy(call.q, queries(number));
    copy(call.dy, dys(number));
    copy(call.y, ys(number));
    copy_numbers<Form::tile, Form::threads>(call.lse + unit.statistics(call.shape), tile.position, seq,
                                            INFINITY, lse(number));
    if (late && call.documents)
      copy_numbers<Form::tile, Form::threads>(documents_of(call.shape, call.documents, batch), tile.position,
                                              seq, 0, first_keys(number));
  }

  // Computes each row of dy . y of a tile, which the softmax's own gradient subtracts from each weight's.
  __device__ void take_delta(unsigned number) const {
    const int own = 16 * place.warp;
    if (own >= Form::tile) return;
    Strip<Form::width, T> dy;
    dy.load(dys(number), own);
    float dots[2];
    dot_same_rows(dy, ys(number), own, dots);
    if (place.column > 0) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) delta()[own + place.row + 8 * r] = dots[r];
  }

  // Says whether a query of this group's part of the tile sees one of the warp's keys.
  __device__ bool is_met(int position, int row_at, unsigned number) const {
    const int strip = first + place.strip;
    if (position >= seq || (call.shape.causal && strip > front + position + Form::inner - 1)) return false;
    return !late || first_key_of(number, row_at, position) <= strip + 15;
  }

  // Returns the first key that the query in a row of a tile sees.
  __device__ int first_key_of(unsigned number, int tile_row, int position) const {
    const auto window = static_cast<int>(call.shape.window);
    const int near = window > 0 ? front + position - window + 1 : 0;
    if (!call.documents) return near;
    return max(near, first_keys(number)[tile_row] - static_cast<int>(call.shape.from));
  }

  // Computes the tile's weights, which are zero where the position is beyond seq: lse is infinite there.
  __device__ void weigh(unsigned number, int row_at, int position, typename Form::Scores& weights) const {
    dot_rows(keys, queries(number), row_at, weights);
    if constexpr (biased) add_biases_of_keys(biases, head, row(0) - position - place.column, weights);
    constexpr float scale = biased ? 1.0f : Form::scale;
#pragma unroll
    for (int i = 0; i < Form::inner / 8; ++i) {
      const auto powers = load_lanes<2>(lse(number) + row_at + 8 * i + place.column);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        weights[i][e] = exp2_approximately(log2_of_e * scale * weights[i][e] - log2_of_e * powers[e % 2]);
    }
    const int strip = first + place.strip, last = front + position + Form::inner - 1;
    const bool cut = late && (call.documents || is_out_of_reach(call.shape, last, strip));
    if (cut || (call.shape.causal && strip + 15 > front + position)) hide(number, row_at, position, weights);
  }

  __device__ void hide(unsigned number, int row_at, int position, typename Form::Scores& weights) const {
#pragma unroll
    for (int i = 0; i < Form::inner / 8; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = 8 * i + place.column + e % 2;
        const bool seen = front + position + column >= (call.shape.causal ? row(e / 2) : 0) &&
                          (!late || row(e / 2) >= first_key_of(number, row_at + column, position + column));
        if (!seen) weights[i][e] = 0;
      }
  }

  __device__ void add_to_keys(unsigned number, int row_at, const typename Form::Scores& weights,
                              typename Form::Scores& dweights) {
#pragma unroll
    for (int i = 0; i < Form::inner / 8; ++i) {
      const auto deltas = load_lanes<2>(delta() + row_at + 8 * i + place.column);
#pragma unroll
      for (int e = 0; e < 4; ++e) dweights[i][e] = weights[i][e] * (dweights[i][e] - deltas[e % 2]);
    }
    typename Form::Weights dscores;
    round_scores<T>(dweights, dscores);
    add_rows(dscores, queries(number), row_at, dk);
  }

  __device__ void meet(unsigned number, QueryTile tile) {
    const int row_at = place.group * Form::inner, position = tile.position + row_at;
    const bool met = is_met(position, row_at, number);
    typename Form::Scores weights, dweights;
    take_delta(number);
    if (met) {
      weigh(number, row_at, position, weights);
      typename Form::Weights rounded;
      round_scores<T>(weights, rounded);
      add_rows(rounded, dys(number), row_at, dv);
      dot_rows(values, dys(number), row_at, dweights);
    }
    __syncthreads();
    if (met) add_to_keys(number, row_at, weights, dweights);
  }

  __device__ void meet_all() {
    this->keep(rows_of(call.k, batch, head), 0);
    this->keep(rows_of(call.v, batch, head), Form::rows);
    const int heads = static_cast<int>(call.shape.queries);
    QueryTile tile{0, begin}, ahead = tile;
    const auto copy_ahead = [&](unsigned number) {
      if (ahead.query < heads) copy_tile(number, ahead);
      commit_copies();
      ahead = after(ahead);
    };
#pragma unroll
    for (unsigned number = 0; number + 1 < Form::stages; ++number) copy_ahead(number);
#pragma unroll 1
    for (unsigned number = 0; tile.query < heads; ++number, tile = after(tile)) {
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

  __device__ void store_results() const {
    this->store(dk, biased ? biases.scale : Form::scale, rows_of(call.dk, batch, head));
    this->store(dv, 1, rows_of(call.dv, batch, head));
  }
};

// The grid is of heads, samples, and tiles: blocks of keys come first, those that most queries see in front.
// Where all blocks run at once, those queries' blocks come first that see least: they share multiprocessors
// with the costliest.
template <class Form, bool late, bool biased>
__global__ __launch_bounds__(Form::threads, Form::blocks) void backward_kernel(
    const __grid_constant__ AttentionBackward<typename Form::Value> call,
    const __grid_constant__ Biases<float> biases, const __grid_constant__ TableParts table, int tiles,
    int key_tiles, bool all_at_once) {
  extern __shared__ __align__(128) unsigned char memory[];
  const int order = static_cast<int>(blockIdx.z) - key_tiles;
  if (order < 0) {
    KeyBlock<Form, late, biased> block(call, biases, blockIdx.y, blockIdx.x, (order + key_tiles) * Form::rows,
                                       memory);
    block.meet_all();
    block.store_results();
  } else {
    const int queries = static_cast<int>(call.shape.queries), turn = queries == 1 ? order : order / queries;
    const Unit unit(blockIdx.y, blockIdx.x, static_cast<unsigned>(order - turn * queries));
    const int tile = all_at_once ? turn : tiles - 1 - turn;
    QueryBlock<Form, late, biased> block(call, biases, table, unit, tile * Form::rows, memory);
    block.meet_all();
    const std::int64_t samples = std::int64_t{tile} * call.shape.batch + blockIdx.y;
    block.store_results((samples * call.shape.heads + blockIdx.x) * queries + unit.query);
  }
}

// ---------------------------------------------------------------- the host's side
template <class Form, bool late, bool biased>
void launch_form(const AttentionBackward<typename Form::Value>& call, const Biases<float>& biases,
                 const TableParts& table, Stream stream) {
  const AttentionShape& shape = call.shape;
  const auto tiles = static_cast<int>(ceil_div(shape.seq, Form::rows)),
             key_tiles = static_cast<int>(ceil_div(shape_of_keys(shape).seq, Form::rows));
  const dim3 grid(grid_of(shape.heads), grid_of(shape.batch), grid_of(key_tiles + tiles * shape.queries));
  const auto kernel = backward_kernel<Form, late, biased>;
  constexpr int bytes = std::max(KeyBlock<Form, late, biased>::bytes, QueryBlock<Form, late, biased>::bytes);
  allow_shared(kernel, bytes);
  const bool all_at_once = shape.batch * shape.heads * grid.z <= Form::blocks * multiprocessors();
  kernel<<<grid, Form::threads, bytes, stream>>>(with_keys(call), biases, table, tiles, key_tiles,
                                                 all_at_once);
}

template <int width, bool late, bool biased, class T>
void launch_width(const AttentionBackward<T>& call, AttentionForm form, const Biases<float>& biases,
                  const TableParts& table, Stream stream) {
  if (form == AttentionForm::few)
    launch_form<Few<T, width>, late, biased>(call, biases, table, stream);
  else
    launch_form<Many<T, width>, late, biased>(call, biases, table, stream);
}

template <int width, class T>
void launch(const AttentionBackward<T>& call, AttentionForm form, const Biases<float>& biases,
            const TableParts& table, Stream stream) {
  if (biases.of)
    launch_width<width, false, true>(call, form, biases, table, stream);
  else if (begins_late(call))
    launch_width<width, true, false>(call, form, biases, table, stream);
  else
    launch_width<width, false, false>(call, form, biases, table, stream);
}

}  // namespace

template <class T>
bool tensor_attention_takes(const AttentionBackward<T>& call) {
  return is_half<T> && takes_shape(call.shape) &&
         packs<T>(call.shape, call.dy, call.q, call.k, call.v, call.y, call.dq, call.dk, call.dv);
}

std::int64_t tensor_attention_tiles(const AttentionShape& shape, AttentionForm form) {
  const bool few = form == AttentionForm::few;
  if (shape.head_dim == 64) return ceil_div(shape.seq, few ? Few<bf16, 64>::rows : Many<bf16, 64>::rows);
  return ceil_div(shape.seq, few ? Few<bf16, 128>::rows : Many<bf16, 128>::rows);
}

template <class T>
void tensor_attention_backward(const AttentionBackward<T>& call, AttentionForm form, Stream stream,
                               const Biases<float>& biases, const TableParts& table) {
  PRUN_CHECK(tensor_attention_takes(call), "attention on tensor cores cannot take this call");
  if (call.shape.query_rows() == 0) return;
  if (call.shape.head_dim == 64)
    launch<64>(call, form, biases, table, stream);
  else
    launch<128>(call, form, biases, table, stream);
  check_launch("attention_backward");
}

template bool tensor_attention_takes(const AttentionBackward<double>&);
template bool tensor_attention_takes(const AttentionBackward<float>&);
template bool tensor_attention_takes(const AttentionBackward<bf16>&);
template bool tensor_attention_takes(const AttentionBackward<f16>&);
template void tensor_attention_backward(const AttentionBackward<bf16>&, AttentionForm, Stream,
                                        const Biases<float>&, const TableParts&);
template void tensor_attention_backward(const AttentionBackward<f16>&, AttentionForm, Stream,
                                        const Biases<float>&, const TableParts&);

}  // namespace prun::cuda
