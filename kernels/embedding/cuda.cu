#include "embedding/cuda.hpp"

#include "embedding/cuda_run_sums.cuh"

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

// Cuts the workspace in pieces, each aligned for 16-byte accesses.
template <class C>
struct GradientSpace {
  RowOrder order;
  Crossing<C> crossing;
  std::int64_t bytes = 0;

  GradientSpace(void* workspace, std::int64_t count, std::int64_t width) {
    const auto take = [&]<class E>(E*& piece, std::int64_t elements) {
      piece = reinterpret_cast<E*>(static_cast<char*>(workspace) + bytes);
      bytes += ceil_div(elements * static_cast<std::int64_t>(sizeof(E)), 16) * 16;
    };
    take(order.rows, count);
    take(order.places, count);
    take(order.count, 1);
    take(crossing.head, ceil_div(count, stretch) * width);
    take(crossing.tail, ceil_div(count, stretch) * width);
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
                           std::int64_t width, std::int64_t rows, std::int64_t first_row,
                           std::int64_t padding, void* workspace, Stream stream) {
  if (count == 0) return;
  const GradientSpace<Compute<T>> space(workspace, count, width);
  order_by_row(tokens, RowShare(count, rows, first_row, padding), space.order, stream);
  add_runs("embedding_weight_grad", space.order, count, dy, dtable, width, space.crossing, stream);
}

template <class T>
std::int64_t embedding_weight_grad_workspace(std::int64_t count, std::int64_t width) {
  return GradientSpace<Compute<T>>(nullptr, count, width).bytes;
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
                                            std::int64_t, std::int64_t, std::int64_t, void*, Stream);      \
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
  template std::int64_t embedding_weight_grad_workspace<T>(std::int64_t, std::int64_t);                  \
  PRUN_TABLE_GRADS(T, Compute<T>)
PRUN_EMBEDDING(double);
PRUN_EMBEDDING(float);
PRUN_EMBEDDING(bf16);
PRUN_EMBEDDING(f16);

}  // namespace prun::cuda
