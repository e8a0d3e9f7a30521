#include "parts/cuda.hpp"

#include <numeric>

#include "cuda/device.cuh"

namespace prun::cuda {
namespace {

// Takes a thread for each N neighbouring values of a row: they lie in one part, or in none.
template <int N, class T>
__global__ void add_parts_kernel(const T* a, AddedParts<T> parts, T* y, std::int64_t rows,
                                 std::int64_t width) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
  if (row >= rows || i >= width) return;
  Lanes<Compute<T>, N> sum = load_lanes<N>(a + row * width + i);
#pragma unroll
  for (int p = 0; p < most_row_parts; ++p) {
    const RowPart at = parts.at[p];
    if (i < at.begin || i >= at.end) continue;
    const Lanes<Compute<T>, N> more = load_lanes<N>(parts.from[p] + row * (at.end - at.begin) + i - at.begin);
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] = sum[k] + more[k];
  }
  store_lanes(y + row * width + i, sum);
}

template <int N, class T>
__global__ void take_part_kernel(const T* x, T* y, RowPart part, std::int64_t rows, std::int64_t width) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
  const std::int64_t length = part.end - part.begin;
  if (row >= rows || i >= length) return;
  store_pack(y + row * length + i, load_pack<N>(x + row * width + part.begin + i));
}

// Does the opposite: x is written to that part of each row of y.
template <int N, class T>
__global__ void put_part_kernel(const T* x, T* y, RowPart part, std::int64_t rows, std::int64_t width) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
  const std::int64_t length = part.end - part.begin;
  if (row >= rows || i >= length) return;
  store_pack(y + row * width + part.begin + i, load_pack<N>(x + row * length + i));
}

// Returns a divisor that the beginnings and ends of parts share with a row.
std::int64_t grain(std::int64_t width, const RowPart& part) {
  return std::gcd(width, std::gcd(part.begin, part.end));
}

}  // namespace

template <class T>
void add_parts(const T* a, const AddedParts<T>& parts, T* y, const PartsShape& shape, Stream stream) {
  if (shape.rows == 0) return;
  std::int64_t common = shape.width;
  for (const RowPart& part : parts.at) common = std::gcd(common, grain(shape.width, part));
  with_chunk<T>(common, {a, y, parts.from[0], parts.from[1], parts.from[2]},
                [&]<int N>(std::integral_constant<int, N>) {
                  const RowGrid grid(shape.rows, shape.width / N);
                  add_parts_kernel<N>
                      <<<grid.grid, grid.block, 0, stream>>>(a, parts, y, shape.rows, shape.width);
                });
  check_launch("add_parts");
}

template <class T>
void take_part(const T* x, T* y, RowPart part, const PartsShape& shape, Stream stream) {
  if (shape.rows == 0 || part.begin == part.end) return;
  with_chunk<T>(grain(shape.width, part), {x, y}, [&]<int N>(std::integral_constant<int, N>) {
    const RowGrid grid(shape.rows, (part.end - part.begin) / N);
    take_part_kernel<N><<<grid.grid, grid.block, 0, stream>>>(x, y, part, shape.rows, shape.width);
  });
  check_launch("take_part");
}

template <class T>
void put_part(const T* x, T* y, RowPart part, const PartsShape& shape, Stream stream) {
  if (shape.rows == 0 || part.begin == part.end) return;
  with_chunk<T>(grain(shape.width, part), {x, y}, [&]<int N>(std::integral_constant<int, N>) {
    const RowGrid grid(shape.rows, (part.end - part.begin) / N);
    put_part_kernel<N><<<grid.grid, grid.block, 0, stream>>>(x, y, part, shape.rows, shape.width);
  });
  check_launch("put_part");
}

#define PRUN_TAKE_PART(T) template void take_part<T>(const T*, T*, RowPart, const PartsShape&, Stream)
PRUN_TAKE_PART(std::int32_t);

#define PRUN_PARTS(T)                                                                        \
  template void add_parts<T>(const T*, const AddedParts<T>&, T*, const PartsShape&, Stream); \
  template void put_part<T>(const T*, T*, RowPart, const PartsShape&, Stream);               \
  PRUN_TAKE_PART(T)
PRUN_PARTS(double);
PRUN_PARTS(float);
PRUN_PARTS(bf16);
PRUN_PARTS(f16);

}  // namespace prun::cuda
