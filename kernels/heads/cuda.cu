#include "heads/cuda.hpp"

#include "cuda/apart.cuh"

namespace prun::cuda {
namespace {

// Uses a thread for each N neighbouring values of a row.
template <int N, class T, class From, class To>
__global__ void heads_kernel(std::int64_t rows, int packed, int width, From from, To to) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const int unit = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x), units = width / N;
  if (row >= rows || unit >= packed * units) return;
  const int slot = unit / units, i = unit % units * N;
  store_pack(to.at(row, slot, packed, width) + i, load_pack<N>(from.at(row, slot, packed, width) + i));
}

template <class T, class From, class To>
void move(const char* name, const HeadsShape& shape, From from, To to,
          std::initializer_list<const void*> pointers, Stream stream) {
  if (shape.rows == 0) return;
  with_chunk<T>(shape.head_dim, pointers, [&]<int N>(std::integral_constant<int, N>) {
    const RowGrid grid(shape.rows, shape.packed * shape.head_dim / N);
    heads_kernel<N, T><<<grid.grid, grid.block, 0, stream>>>(shape.rows, static_cast<int>(shape.packed),
                                                             static_cast<int>(shape.head_dim), from, to);
  });
  check_launch(name);
}

}  // namespace

template <class T>
void split_heads(const T* x, T* q, T* k, T* v, const HeadsShape& shape, Stream stream) {
  move<T>("split_heads", shape, Together<const T>{x}, Apart<T>{q, k, v}, {x, q, k, v}, stream);
}

template <class T>
void join_heads(const T* q, const T* k, const T* v, T* x, const HeadsShape& shape, Stream stream) {
  move<T>("join_heads", shape, Apart<const T>{q, k, v}, Together<T>{x}, {x, q, k, v}, stream);
}

template <class T>
void split_heads_apart(const T* first, const T* last, T* q, T* k, T* v, const HeadsShape& shape,
                       Stream stream) {
  move<T>("split_heads_apart", shape, InTwo<const T>{first, last}, Apart<T>{q, k, v}, {first, last, q, k, v},
          stream);
}

template <class T>
void join_heads_apart(const T* q, const T* k, const T* v, T* first, T* last, const HeadsShape& shape,
                      Stream stream) {
  move<T>("join_heads_apart", shape, Apart<const T>{q, k, v}, InTwo<T>{first, last}, {q, k, v, first, last},
          stream);
}

#define PRUN_HEADS(T)                                                                            \
  template void split_heads<T>(const T*, T*, T*, T*, const HeadsShape&, Stream);                 \
  template void join_heads<T>(const T*, const T*, const T*, T*, const HeadsShape&, Stream);      \
  template void split_heads_apart<T>(const T*, const T*, T*, T*, T*, const HeadsShape&, Stream); \
  template void join_heads_apart<T>(const T*, const T*, const T*, T*, T*, const HeadsShape&, Stream)
PRUN_HEADS(double);
PRUN_HEADS(float);
PRUN_HEADS(bf16);
PRUN_HEADS(f16);

}  // namespace prun::cuda
