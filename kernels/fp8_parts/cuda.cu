// A block of threads takes a square of 128 x 128, of which the part at hand may have some rows, or ends of
// some. Borders of parts are multiples of 128 elements, so that a lane's four neighbours are on one side.
#include "fp8_parts/cuda.hpp"

#include <algorithm>

#include "cuda/fp8_tile.cuh"

namespace prun::cuda {

using namespace fp8;

namespace {

constexpr std::uint32_t infinite_bits = 0x7f800000u;

// Names a square, and which of a lane's elements the part has.
struct SquareInPart {
  const MatrixInPart& of;
  Tile t;

  __device__ SquareInPart(const MatrixInPart& matrix, std::int64_t first_band)
      : of(matrix), t{matrix.rows, matrix.columns} {
    t.down += first_band;
  }
  __device__ std::int64_t at(int i) const { return (t.row() + i) * of.columns + t.column(); }
  __device__ bool has(int i) const { return t.there() && at(i) >= of.from && at(i) < of.to; }
  __device__ std::int64_t number() const {
    return t.down * ((of.columns + fp8_block - 1) / fp8_block) + t.across;
  }
};

template <bool aligned, class T>
__device__ __forceinline__ void load_part(Part<T>& part, const T* x, const SquareInPart& square) {
#pragma unroll
  for (int i = 0; i < tall; ++i) {
    const T* const from = x + (square.at(i) - square.of.from);
    if (!square.has(i)) {
      part.row[i] = {};
    } else if constexpr (aligned) {
      part.row[i] = load_pack<each>(from);
    } else {
      Lanes<float, each> numbers;
#pragma unroll
      for (int l = 0; l < each; ++l) numbers[l] = cuda::load(from + l);
      part.row[i] = pack<T>(numbers);
    }
  }
}

template <bool aligned, class T>
__global__ __launch_bounds__(fp8_threads) void peak_squares_kernel(const T* x, MatrixInPart matrix,
                                                                   std::int64_t first_band, float* peaks) {
  __shared__ std::uint32_t shared[warps];
  const SquareInPart square(matrix, first_band);
  Part<T> part;
  load_part<aligned>(part, x, square);
  const std::uint32_t largest = square_peak(part, shared);
  if (threadIdx.x == 0) {
    float* const peak = peaks + square.number();
    const float found = __uint_as_float(largest < infinite_bits ? largest : infinite_bits);
    if (*peak < found) *peak = found;
  }
}

template <bool aligned, class T>
__global__ __launch_bounds__(fp8_threads) void encode_part_kernel(const T* x, MatrixInPart matrix,
                                                                  std::int64_t first_band, const float* peaks,
                                                                  std::uint8_t* codes) {
  const SquareInPart square(matrix, first_band);
  Part<T> part;
  load_part<aligned>(part, x, square);
  std::uint32_t bits[each], words[tall];
#pragma unroll
  for (int l = 0; l < each; ++l) bits[l] = fp8_scale_bits(__float_as_uint(peaks[square.number()]));
  find_codes<Blocks::squares>(part, bits, words);
#pragma unroll
  for (int i = 0; i < tall; ++i)
    if (square.has(i)) *reinterpret_cast<std::uint32_t*>(codes + (square.at(i) - matrix.from)) = words[i];
}

// Writes the scales that lie in the part, one each thread.
__global__ void scales_in_part_kernel(MatrixInPart matrix, const float* peaks, std::uint8_t* codes) {
  const std::int64_t across = (matrix.columns + fp8_block - 1) / fp8_block,
                     down = (matrix.rows + fp8_block - 1) / fp8_block, stride = (across + 3) / 4 * 4;
  const std::int64_t number = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (number >= across * down) return;
  const std::int64_t at = matrix.rows * matrix.columns + (number / across * stride + number % across) *
                                                             static_cast<std::int64_t>(sizeof(float));
  if (at < matrix.from || at >= matrix.to) return;
  *reinterpret_cast<std::uint32_t*>(codes + (at - matrix.from)) =
      fp8_scale_bits(__float_as_uint(peaks[number]));
}

// Returns the rows of squares that the part has some of: the first one, and how many.
struct Bands {
  std::int64_t first = 0, count = 0;

  explicit Bands(const MatrixInPart& m) {
    const std::int64_t all = m.rows * m.columns, from = std::max<std::int64_t>(m.from, 0),
                       to = std::min(m.to, all);
    if (from >= to) return;
    first = from / m.columns / fp8_block;
    count = (to - 1) / m.columns / fp8_block - first + 1;
  }
};

void check_part(const MatrixInPart& m) {
  PRUN_CHECK(m.rows % fp8_grain == 0 && m.columns % fp8_grain == 0 && m.from % fp8_block == 0 &&
                 m.to % fp8_block == 0,
             m.rows, " x ", m.columns, " from ", m.from, " to ", m.to);
}

}  // namespace

template <class T>
void peak_fp8_squares(const T* x, const MatrixInPart& matrix, float* peaks, Stream stream) {
  check_part(matrix);
  const Bands bands(matrix);
  if (bands.count == 0) return;
  const dim3 squares(grid_of(fp8_blocks_in(matrix.columns)), grid_of(bands.count));
  if (cuda::aligned({x})) {
    peak_squares_kernel<true, T><<<squares, fp8_threads, 0, stream>>>(x, matrix, bands.first, peaks);
  } else {
    peak_squares_kernel<false, T><<<squares, fp8_threads, 0, stream>>>(x, matrix, bands.first, peaks);
  }
  check_launch("peak_fp8_squares");
}

template <class T>
void encode_fp8_part(const T* x, const MatrixInPart& matrix, const float* peaks, std::uint8_t* codes,
                     Stream stream) {
  check_part(matrix);
  PRUN_CHECK(cuda::aligned({codes}), "codes that are not aligned");
  if (const Bands bands(matrix); bands.count > 0) {
    const dim3 squares(grid_of(fp8_blocks_in(matrix.columns)), grid_of(bands.count));
    if (cuda::aligned({x})) {
      encode_part_kernel<true, T><<<squares, fp8_threads, 0, stream>>>(x, matrix, bands.first, peaks, codes);
    } else {
      encode_part_kernel<false, T><<<squares, fp8_threads, 0, stream>>>(x, matrix, bands.first, peaks, codes);
    }
    check_launch("encode_fp8_part");
  }
  if (matrix.to <= matrix.rows * matrix.columns) return;
  const std::int64_t scales = fp8_blocks_in(matrix.rows) * fp8_blocks_in(matrix.columns);
  scales_in_part_kernel<<<grid_of((scales + 255) / 256), 256, 0, stream>>>(matrix, peaks, codes);
  check_launch("encode_fp8_part");
}

#define PRUN_FP8_PARTS(T)                                                           \
  template void peak_fp8_squares<T>(const T*, const MatrixInPart&, float*, Stream); \
  template void encode_fp8_part<T>(const T*, const MatrixInPart&, const float*, std::uint8_t*, Stream)
PRUN_FP8_PARTS(float);
PRUN_FP8_PARTS(bf16);
PRUN_FP8_PARTS(f16);

}  // namespace prun::cuda
