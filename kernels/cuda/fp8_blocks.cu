#include "cuda/fp8_blocks.hpp"

#include "cuda/fp8_tile.cuh"
#include "prun/block_codes.hpp"

namespace prun::cuda {

using namespace fp8;

namespace {

template <Blocks blocks, bool transposed, bool aligned, class T>
__global__ __launch_bounds__(fp8_threads) void round_kernel(const T* x, std::int64_t rows,
                                                            std::int64_t columns, Fp8Factor to) {
  __shared__ std::uint32_t shared[warps * 128];
  __shared__ uint4 tile[128 * warps];
  const Tile t{rows, columns};
  Part<T> part;
  part.template load<aligned>(x + t.row() * columns + t.column(), columns, t.there());
  std::uint32_t bits[blocks == Blocks::rows ? tall : each], words[tall];
  find_scales<blocks>(part, bits, shared);
  find_codes<blocks>(part, bits, words);
  if constexpr (transposed)
    write_transposed(t, words, tile, to.codes);
  else
    write_rows(t, words, to.codes);
  write_scales<blocks, transposed>(t, bits, to.scales);
}

template <bool aligned, class T>
__global__ __launch_bounds__(fp8_threads) void round_both_kernel(const T* x, std::int64_t rows,
                                                                 std::int64_t columns, Fp8Factor by_rows,
                                                                 Fp8Factor by_columns) {
  __shared__ std::uint32_t shared[warps * 128];
  __shared__ uint4 tile[128 * warps];
  const Tile t{rows, columns};
  Part<T> part;
  part.template load<aligned>(x + t.row() * columns + t.column(), columns, t.there());
  write_both(t, part, by_rows, by_columns, shared, tile);
}

template <bool aligned, class T>
__global__ __launch_bounds__(fp8_threads) void round_twice_kernel(const T* x, std::int64_t rows,
                                                                  std::int64_t columns, Fp8Factor by_rows,
                                                                  Fp8Factor by_squares) {
  __shared__ std::uint32_t shared[warps];
  __shared__ uint4 tile[128 * warps];
  const Tile t{rows, columns};
  Part<T> part;
  part.template load<aligned>(x + t.row() * columns + t.column(), columns, t.there());
  write_rows_and_squares(t, part, by_rows, by_squares, shared, tile);
}

template <bool aligned, class T>
__global__ __launch_bounds__(fp8_threads) void square_rows_kernel(const T* x, std::int64_t rows,
                                                                  std::int64_t columns, std::uint8_t* codes) {
  __shared__ std::uint32_t shared[warps];
  const Tile t{rows, columns};
  Part<T> part;
  part.template load<aligned>(x + t.row() * columns + t.column(), columns, t.there());
  std::uint32_t bits[each], words[tall];
  find_scales<Blocks::squares>(part, bits, shared);
  find_codes<Blocks::squares>(part, bits, words);
#pragma unroll
  for (int i = 0; i < tall; ++i) {
    auto* const block = reinterpret_cast<std::uint32_t*>(
        codes + ((t.row() + i) * (columns / fp8_block) + t.across) * code_block_bytes(8));
    if (t.lane == 0) block[0] = bits[0];
    block[1 + t.lane] = words[i];
  }
}

__global__ __launch_bounds__(fp8_threads) void turn_kernel(Fp8Factor from, std::int64_t rows,
                                                           std::int64_t columns, Fp8Factor to) {
  __shared__ uint4 tile[128 * warps];
  const Tile t{rows, columns};
  std::uint32_t words[tall];
#pragma unroll
  for (int i = 0; i < tall; ++i)
    words[i] =
        t.there() ? *reinterpret_cast<const std::uint32_t*>(from.codes + (t.row() + i) * columns + t.column())
                  : 0u;
  write_transposed(t, words, tile, to.codes);
  if (threadIdx.x == 0)
    to.scales[t.across * fp8_square_stride(rows) + t.down] =
        from.scales[t.down * fp8_square_stride(columns) + t.across];
}

template <Blocks blocks, bool transposed, class T>
void launch(const T* x, std::int64_t rows, std::int64_t columns, const Fp8Factor& to, Stream stream) {
  const dim3 tiles = tiles_of(rows, columns, {to});
  if (rows == 0 || columns == 0) return;
  if (cuda::aligned({x})) {
    round_kernel<blocks, transposed, true, T><<<tiles, fp8_threads, 0, stream>>>(x, rows, columns, to);
  } else {
    round_kernel<blocks, transposed, false, T><<<tiles, fp8_threads, 0, stream>>>(x, rows, columns, to);
  }
  check_launch("fp8_blocks");
}

}  // namespace

template <class T>
void rows_to_fp8(const T* x, std::int64_t rows, std::int64_t columns, const Fp8Factor& to, Stream stream) {
  launch<Blocks::rows, false>(x, rows, columns, to, stream);
}

template <class T>
void columns_to_fp8(const T* x, std::int64_t rows, std::int64_t columns, const Fp8Factor& to, Stream stream) {
  launch<Blocks::columns, true>(x, rows, columns, to, stream);
}

template <class T>
void rows_and_columns_to_fp8(const T* x, std::int64_t rows, std::int64_t columns, const Fp8Factor& by_rows,
                             const Fp8Factor& by_columns, Stream stream) {
  const dim3 tiles = tiles_of(rows, columns, {by_rows, by_columns});
  if (rows == 0 || columns == 0) return;
  if (cuda::aligned({x})) {
    round_both_kernel<true, T><<<tiles, fp8_threads, 0, stream>>>(x, rows, columns, by_rows, by_columns);
  } else {
    round_both_kernel<false, T><<<tiles, fp8_threads, 0, stream>>>(x, rows, columns, by_rows, by_columns);
  }
  check_launch("fp8_blocks");
}

template <class T>
void rows_and_squares_to_fp8(const T* x, std::int64_t rows, std::int64_t columns, const Fp8Factor& by_rows,
                             const Fp8Factor& by_squares, Stream stream) {
  const dim3 tiles = tiles_of(rows, columns, {by_rows, by_squares});
  if (rows == 0 || columns == 0) return;
  if (cuda::aligned({x})) {
    round_twice_kernel<true, T><<<tiles, fp8_threads, 0, stream>>>(x, rows, columns, by_rows, by_squares);
  } else {
    round_twice_kernel<false, T><<<tiles, fp8_threads, 0, stream>>>(x, rows, columns, by_rows, by_squares);
  }
  check_launch("fp8_blocks");
}

template <class T>
void squares_to_fp8(const T* x, std::int64_t rows, std::int64_t columns, bool transposed, const Fp8Factor& to,
                    Stream stream) {
  if (transposed)
    launch<Blocks::squares, true>(x, rows, columns, to, stream);
  else
    launch<Blocks::squares, false>(x, rows, columns, to, stream);
}

template <class T>
void square_rows_to_fp8(const T* x, std::int64_t rows, std::int64_t columns, std::uint8_t* codes,
                        Stream stream) {
  PRUN_CHECK(rows % fp8_block == 0 && columns % fp8_block == 0, rows, " x ", columns);
  if (rows == 0 || columns == 0) return;
  const dim3 tiles(grid_of(columns / fp8_block), grid_of(rows / fp8_block));
  if (cuda::aligned({x})) {
    square_rows_kernel<true, T><<<tiles, fp8_threads, 0, stream>>>(x, rows, columns, codes);
  } else {
    square_rows_kernel<false, T><<<tiles, fp8_threads, 0, stream>>>(x, rows, columns, codes);
  }
  check_launch("fp8_blocks");
}

void turn_fp8_squares(const Fp8Factor& from, std::int64_t rows, std::int64_t columns, const Fp8Factor& to,
                      Stream stream) {
  const dim3 tiles = tiles_of(rows, columns, {from, to});
  if (rows == 0 || columns == 0) return;
  turn_kernel<<<tiles, fp8_threads, 0, stream>>>(from, rows, columns, to);
  check_launch("fp8_blocks");
}

#define PRUN_FP8_BLOCKS(T)                                                                          \
  template void rows_to_fp8<T>(const T*, std::int64_t, std::int64_t, const Fp8Factor&, Stream);     \
  template void columns_to_fp8<T>(const T*, std::int64_t, std::int64_t, const Fp8Factor&, Stream);  \
  template void rows_and_columns_to_fp8<T>(const T*, std::int64_t, std::int64_t, const Fp8Factor&,  \
                                           const Fp8Factor&, Stream);                               \
  template void rows_and_squares_to_fp8<T>(const T*, std::int64_t, std::int64_t, const Fp8Factor&,  \
                                           const Fp8Factor&, Stream);                               \
  template void square_rows_to_fp8<T>(const T*, std::int64_t, std::int64_t, std::uint8_t*, Stream); \
  template void squares_to_fp8<T>(const T*, std::int64_t, std::int64_t, bool, const Fp8Factor&, Stream)
PRUN_FP8_BLOCKS(float);
PRUN_FP8_BLOCKS(bf16);
PRUN_FP8_BLOCKS(f16);

}  // namespace prun::cuda
