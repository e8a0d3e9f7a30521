#include "cuda/embedding.hpp"

#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "cuda/device.cuh"

namespace prun::cuda {
namespace {

// RowGrid keeps rows below 2^31.
__device__ std::int64_t position_of(std::int64_t row, std::int64_t seq) {
  return static_cast<std::uint32_t>(row) % static_cast<std::uint32_t>(seq);
}

inline constexpr int embedding_unroll = 4;  // counts chunks of a row that a thread has in flight

template <int N, class T>
__global__ __launch_bounds__(256) void embedding_kernel(const std::int32_t* tokens, const T* table,
                                                        const T* positions, T* y, std::int64_t count,
                                                        std::int64_t seq, std::int64_t width,
                                                        std::int64_t rows, std::int64_t first_row) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (i >= count) return;
  const std::int64_t first =
      static_cast<std::int64_t>(blockIdx.y) * blockDim.x * embedding_unroll + threadIdx.x;
  const auto column = [&](int u) { return (first + u * static_cast<int>(blockDim.x)) * N; };
  const std::int64_t row = tokens[i] - first_row;
  const bool here = row >= 0 && row < rows;
  Pack<T, N> value[embedding_unroll] = {}, position[embedding_unroll];
#pragma unroll
  for (int u = 0; u < embedding_unroll; ++u)
    if (column(u) < width) {
      if (here) value[u] = load_pack<N>(table + row * width + column(u));
      if (positions) position[u] = load_pack<N>(positions + position_of(i, seq) * width + column(u));
    }
#pragma unroll
  for (int u = 0; u < embedding_unroll; ++u)
    if (column(u) < width) {
      if (positions) {
        Lanes<Compute<T>, N> sum = unpack(value[u]);
        const Lanes<Compute<T>, N> by = unpack(position[u]);
#pragma unroll
        for (int l = 0; l < N; ++l) sum[l] += by[l];
        value[u] = pack<T>(sum);
      }
      store_pack(y + i * width + column(u), value[u]);
    }
}

// Returns rows of a table from that of a position on, which may lie on the device; later positions use the
// last row.
template <class T>
struct PositionRows {
  const T* table;
  const double* first;
  std::int64_t last;
  const std::int32_t* rows = nullptr;  // by place; null: they follow each other

  __device__ const T* at(std::int64_t row, std::int64_t width) const {
    if (!first) return table + (rows ? rows[row] : row) * width;
    const std::int64_t position = static_cast<std::int64_t>(*first) + row;
    return table + (position < last ? position : last) * width;
  }
};

template <int N, class T>
__global__ __launch_bounds__(256) void add_position_kernel(const T* x, PositionRows<T> positions, T* y,
                                                           std::int64_t rows, std::int64_t seq,
                                                           std::int64_t width) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
  if (row >= rows || column >= width) return;
  const Pack<T, N> in = load_pack<N>(x + row * width + column);
  const Pack<T, N> by = load_pack<N>(positions.at(position_of(row, seq), width) + column);
  Lanes<Compute<T>, N> sum = unpack(in);
  const Lanes<Compute<T>, N> position = unpack(by);
#pragma unroll
  for (int l = 0; l < N; ++l) sum[l] += position[l];
  store_lanes(y + row * width + column, sum);
}

// ---------------------------------------------------------------- gradient of the table
// The tokens are sorted by row, stably, and cut into stretches of equal length. A warp adds up the rows of dy
// of a stretch, some columns of them: sums of runs of one token that lie within the stretch go to the table,
// those of runs that cross its ends to the workspace, from where the warp of the run's first stretch adds
// them up in their order.
inline constexpr int stretch = 32;

struct Sorted {
  std::uint32_t* rows;  // `outside` for tokens of other shards, which come last
  std::int32_t* places;
};

__global__ void key_kernel(const std::int32_t* tokens, std::int64_t count, std::int64_t rows,
                           std::int64_t first_row, Sorted keys) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const std::int64_t row = tokens[i] - first_row;
  keys.rows[i] = static_cast<std::uint32_t>(row >= 0 && row < rows ? row : rows);
  keys.places[i] = static_cast<std::int32_t>(i);
}

// Holds sums of runs that cross a stretch's ends: of the run that comes from before, and of the one that goes
// on.
template <class C>
struct Crossing {
  C* head;
  C* tail;
};

inline constexpr int gradient_warps = 8, gradient_unroll = 4, crossing_unroll = 16;

template <int N, class T, class S>
__global__ __launch_bounds__(32 * gradient_warps) void stretch_kernel(Sorted sorted, const T* dy, S* dtable,
                                                                      std::int64_t count, std::int64_t width,
                                                                      std::uint32_t outside,
                                                                      Crossing<Compute<T>> crossing) {
  using C = Compute<T>;
  const std::int64_t number = static_cast<std::int64_t>(blockIdx.x) * gradient_warps + threadIdx.y;
  const std::int64_t begin = number * stretch, end = begin + stretch < count ? begin + stretch : count;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * 32 + threadIdx.x) * N;
  if (begin >= count || column >= width) return;
  const bool from_before = begin > 0 && sorted.rows[begin - 1] == sorted.rows[begin];
  const bool goes_on = end < count && sorted.rows[end] == sorted.rows[end - 1];
  const std::uint32_t first = sorted.rows[begin];
  Lanes<C, N> sum = {};
  for (std::int64_t i = begin; i < end; i += gradient_unroll) {
    Pack<T, N> terms[gradient_unroll];
    Lanes<C, N> before[gradient_unroll];
    std::uint32_t row[gradient_unroll + 1];
#pragma unroll
    for (int u = 0; u <= gradient_unroll; ++u) row[u] = i + u < end ? sorted.rows[i + u] : outside;
    const auto last = [&](int u) { return i + u + 1 == end; };
    const auto run_ends = [&](int u) { return last(u) || row[u + 1] != row[u]; };
    const auto in_head = [&](int u) { return from_before && row[u] == first; };
    const auto in_tail = [&](int u) { return last(u) && goes_on; };
#pragma unroll
    for (int u = 0; u < gradient_unroll; ++u)
      if (row[u] != outside) {
        terms[u] = load_pack<N>(dy + static_cast<std::int64_t>(sorted.places[i + u]) * width + column);
        if (run_ends(u) && !in_head(u) && !in_tail(u))
          before[u] = load_lanes<N>(dtable + row[u] * width + column);
      }
#pragma unroll
    for (int u = 0; u < gradient_unroll; ++u) {
      if (row[u] == outside) continue;
      const Lanes<C, N> term = unpack(terms[u]);
#pragma unroll
      for (int l = 0; l < N; ++l) sum[l] += term[l];
      if (!run_ends(u)) continue;
      if (in_head(u)) {
        store_lanes(crossing.head + number * width + column, sum);
      } else if (in_tail(u)) {
        store_lanes(crossing.tail + number * width + column, sum);
      } else {
#pragma unroll
        for (int l = 0; l < N; ++l) sum[l] = before[u][l] + sum[l];
        store_lanes(dtable + row[u] * width + column, sum);
      }
      sum = {};
    }
  }
}

// A run's later stretches have all of it in their heads; the first stretch that it does not fill is its last.
template <int N, class S>
__global__ __launch_bounds__(32 * gradient_warps) void crossing_kernel(Sorted sorted, S* dtable,
                                                                       std::int64_t count, std::int64_t width,
                                                                       std::uint32_t outside,
                                                                       Crossing<Compute<S>> crossing) {
  using C = Compute<S>;
  const std::int64_t number = static_cast<std::int64_t>(blockIdx.x) * gradient_warps + threadIdx.y;
  const std::int64_t begin = number * stretch, end = begin + stretch;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * 32 + threadIdx.x) * N;
  if (end >= count || column >= width) return;
  const std::uint32_t row = sorted.rows[end - 1];
  if (row == outside || sorted.rows[end] != row) return;
  if (begin > 0 && sorted.rows[begin - 1] == row) return;  // the run began in an earlier stretch
  Lanes<C, N> sum = load_lanes<N>(crossing.tail + number * width + column);
  for (std::int64_t later = number + 1; later * stretch < count; later += crossing_unroll) {
    Lanes<C, N> part[crossing_unroll];
    bool in[crossing_unroll];
#pragma unroll
    for (int u = 0; u < crossing_unroll; ++u) {
      const std::int64_t at = (later + u) * stretch;
      in[u] = at < count && sorted.rows[at] == row;
      if (in[u]) part[u] = load_lanes<N>(crossing.head + (later + u) * width + column);
    }
#pragma unroll
    for (int u = 0; u < crossing_unroll; ++u)
      if (in[u]) {
#pragma unroll
        for (int l = 0; l < N; ++l) sum[l] += part[u][l];
      }
    if (!in[crossing_unroll - 1]) break;
  }
  S* to = dtable + row * width + column;
  const Lanes<C, N> before = load_lanes<N>(to);
#pragma unroll
  for (int l = 0; l < N; ++l) sum[l] = before[l] + sum[l];
  store_lanes(to, sum);
}

// Cuts the workspace in pieces, each aligned for 16-byte accesses.
template <class C>
struct GradientSpace {
  Sorted keys, sorted;
  Crossing<C> crossing;
  void* sort;
  std::size_t sort_bytes = 0;
  std::int64_t bytes = 0;
  int key_bits;

  GradientSpace(void* workspace, std::int64_t count, std::int64_t width, std::int64_t rows)
      : key_bits(std::bit_width(static_cast<std::uint32_t>(rows))) {
    PRUN_CHECK(count < (std::int64_t{1} << 31) && rows < (std::int64_t{1} << 31), count, " tokens, ", rows,
               " rows");
    const auto take = [&]<class E>(E*& piece, std::int64_t elements) {
      piece = reinterpret_cast<E*>(static_cast<char*>(workspace) + bytes);
      bytes += ceil_div(elements * static_cast<std::int64_t>(sizeof(E)), 16) * 16;
    };
    for (Sorted* s : {&keys, &sorted}) take(s->rows, count), take(s->places, count);
    const std::int64_t stretches = ceil_div(count, stretch);
    take(crossing.head, stretches * width);
    take(crossing.tail, stretches * width);
    sort_bytes = static_cast<std::size_t>(16 * count + (1 << 20));
    char* space;
    take(space, static_cast<std::int64_t>(sort_bytes));
    sort = space;
  }

  // A sort needs memory that depends on the device: its buffers, 8 bytes a pair, and tables for each tile.
  // This checks it against the bytes kept for it, which must be known without a device.
  void check_sort(std::int64_t count) {
    const std::size_t kept = sort_bytes;
    check(run_sort(nullptr, count, nullptr), "the size of a sort");
    PRUN_CHECK(sort_bytes <= kept, sort_bytes, " bytes to sort ", count, " tokens");
  }
  // Without a space it only says how many bytes it needs.
  cudaError_t run_sort(void* space, std::int64_t count, Stream stream) {
    return cub::DeviceRadixSort::SortPairs(space, sort_bytes, keys.rows, sorted.rows, keys.places,
                                           sorted.places, static_cast<int>(count), 0, key_bits, stream);
  }
};

}  // namespace

template <class T>
void embedding(const std::int32_t* tokens, const T* table, const T* positions, T* y, std::int64_t count,
               std::int64_t seq, std::int64_t width, std::int64_t rows, std::int64_t first_row,
               Stream stream) {
  if (count == 0) return;
  with_chunk<T>(width, {table, positions, y}, [&]<int N>(std::integral_constant<int, N>) {
    const RowGrid at(count, ceil_div(width / N, embedding_unroll));
    embedding_kernel<N>
        <<<at.grid, at.block, 0, stream>>>(tokens, table, positions, y, count, seq, width, rows, first_row);
  });
  check_launch("embedding");
}

namespace {

template <class T>
void add_rows(const char* name, const T* x, const PositionRows<T>& positions, T* y, std::int64_t batch,
              std::int64_t seq, std::int64_t width, Stream stream) {
  if (batch * seq == 0) return;
  with_chunk<T>(width, {x, positions.table, y}, [&]<int N>(std::integral_constant<int, N>) {
    const RowGrid at(batch * seq, width / N);
    add_position_kernel<N><<<at.grid, at.block, 0, stream>>>(x, positions, y, batch * seq, seq, width);
  });
  check_launch(name);
}

}  // namespace

template <class T>
void add_position(const T* x, const T* positions, const std::int32_t* rows, T* y, std::int64_t batch,
                  std::int64_t seq, std::int64_t width, Stream stream) {
  add_rows<T>("add_position", x, {positions, nullptr, 0, rows}, y, batch, seq, width, stream);
}

template <class T>
void add_position_at(const T* x, const T* positions, const double* position, T* y, std::int64_t batch,
                     std::int64_t seq, std::int64_t width, std::int64_t rows, Stream stream) {
  add_rows<T>("add_position_at", x, {positions, position, rows - 1}, y, batch, seq, width, stream);
}

template <class T, class S>
void embedding_weight_grad(const std::int32_t* tokens, const T* dy, S* dtable, std::int64_t count,
                           std::int64_t width, std::int64_t rows, std::int64_t first_row, void* workspace,
                           Stream stream) {
  if (count == 0) return;
  GradientSpace<Compute<T>> space(workspace, count, width, rows);
  key_kernel<<<grid_of(ceil_div(count, 256)), 256, 0, stream>>>(tokens, count, rows, first_row, space.keys);
  check_launch("embedding_weight_grad");
  space.check_sort(count);
  check(space.run_sort(space.sort, count, stream), "sorting tokens");
  const auto outside = static_cast<std::uint32_t>(rows);
  const auto blocks = grid_of(ceil_div(ceil_div(count, stretch), gradient_warps));
  const auto columns = [&](int n) { return grid_of(ceil_div(width, 32 * n)); };
  const dim3 block(32, gradient_warps);
  with_chunk<Compute<T>>(width, {dy, dtable}, [&]<int N>(std::integral_constant<int, N>) {
    stretch_kernel<N><<<dim3(blocks, columns(N)), block, 0, stream>>>(space.sorted, dy, dtable, count, width,
                                                                      outside, space.crossing);
    check_launch("embedding_weight_grad");
    crossing_kernel<N><<<dim3(blocks, columns(N)), block, 0, stream>>>(space.sorted, dtable, count, width,
                                                                       outside, space.crossing);
  });
  check_launch("embedding_weight_grad");
}

template <class T>
std::int64_t embedding_weight_grad_workspace(std::int64_t count, std::int64_t width, std::int64_t rows) {
  return GradientSpace<Compute<T>>(nullptr, count, width, rows).bytes;
}

namespace {

template <int N, class T, class S>
__global__ __launch_bounds__(256) void position_weight_grad_kernel(const T* dy, Sum<S> dpositions,
                                                                   const std::int32_t* rows,
                                                                   std::int64_t batch, std::int64_t row,
                                                                   std::int64_t width) {
  using C = Compute<T>;
  constexpr int unroll = 8;
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (at >= row) return;
  S* const to = dpositions.data + (rows ? rows[at / width] * width + at % width : at);
  Lanes<C, N> sum = {};
  if (!dpositions.begins) sum = load_lanes<N>(to);
  for (std::int64_t sample = 0; sample < batch; sample += unroll) {
    Pack<T, N> terms[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      if (sample + u < batch) terms[u] = load_pack<N>(dy + (sample + u) * row + at);
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      if (sample + u < batch) {
        const Lanes<C, N> term = unpack(terms[u]);
#pragma unroll
        for (int l = 0; l < N; ++l) sum[l] += term[l];
      }
  }
  store_lanes(to, sum);
}

}  // namespace

template <class T, class S>
void position_weight_grad(const T* dy, Sum<S> dpositions, const std::int32_t* rows, std::int64_t batch,
                          std::int64_t seq, std::int64_t width, Stream stream) {
  const std::int64_t row = seq * width;
  if (batch * row == 0) return;
  with_chunk<T>(rows ? width : row, {dy, dpositions.data}, [&]<int N>(std::integral_constant<int, N>) {
    position_weight_grad_kernel<N>
        <<<grid_of(ceil_div(row / N, 256)), 256, 0, stream>>>(dy, dpositions, rows, batch, row, width);
  });
  check_launch("position_weight_grad");
}

#define PRUN_TABLE_GRADS(T, S)                                                                             \
  template void embedding_weight_grad<T, S>(const std::int32_t*, const T*, S*, std::int64_t, std::int64_t, \
                                            std::int64_t, std::int64_t, void*, Stream);                    \
  template void position_weight_grad<T, S>(const T*, Sum<S>, const std::int32_t*, std::int64_t,            \
                                           std::int64_t, std::int64_t, Stream)
PRUN_TABLE_GRADS(bf16, bf16);

#define PRUN_EMBEDDING(T)                                                                                \
  template void embedding<T>(const std::int32_t*, const T*, const T*, T*, std::int64_t, std::int64_t,    \
                             std::int64_t, std::int64_t, std::int64_t, Stream);                          \
  template void add_position<T>(const T*, const T*, const std::int32_t*, T*, std::int64_t, std::int64_t, \
                                std::int64_t, Stream);                                                   \
  template void add_position_at<T>(const T*, const T*, const double*, T*, std::int64_t, std::int64_t,    \
                                   std::int64_t, std::int64_t, Stream);                                  \
  template std::int64_t embedding_weight_grad_workspace<T>(std::int64_t, std::int64_t, std::int64_t);    \
  PRUN_TABLE_GRADS(T, Compute<T>)
PRUN_EMBEDDING(double);
PRUN_EMBEDDING(float);
PRUN_EMBEDDING(bf16);
PRUN_EMBEDDING(f16);

}  // namespace prun::cuda
