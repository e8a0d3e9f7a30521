#include "dropout/cuda.hpp"

#include "cuda/device.cuh"
#include "cuda/drop_draws.cuh"
#include "memory/cuda.hpp"

namespace prun::cuda {
namespace {

inline constexpr int dropout_unroll = 4;

// N is a multiple of 4, and channels begin at a multiple of 4; or N is 1.
template <int N, class T>
__global__ __launch_bounds__(256) void dropout_kernel(const T* x, const std::int64_t* samples,
                                                      const double* seed, T* y, DropoutShape shape,
                                                      DropChance<Compute<T>> chance) {
  using C = Compute<T>;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= shape.batch * shape.seq) return;
  const std::int64_t first =
      static_cast<std::int64_t>(blockIdx.y) * blockDim.x * dropout_unroll + threadIdx.x;
  Pack<T, N> in[dropout_unroll];
#pragma unroll
  for (int u = 0; u < dropout_unroll; ++u) {
    const std::int64_t column = (first + u * blockDim.x) * N;
    if (column < shape.width) in[u] = load_pack<N>(x + row * shape.width + column);
  }

  const std::uint32_t batch_row = static_cast<std::uint32_t>(row) / static_cast<std::uint32_t>(shape.seq);
  const std::int64_t place = row - batch_row * shape.seq;
  const std::int64_t position = shape.positions ? shape.positions[place] : shape.first_position + place;
  const DropRow drawn(*seed, samples[batch_row], position,
                      static_cast<std::uint32_t>((shape.layer << 16) + shape.stream));
  const auto pass = [&](C value, std::uint32_t word) {
    return chance.stays(word) ? value * chance.scale : C(0);
  };
#pragma unroll
  for (int u = 0; u < dropout_unroll; ++u) {
    const std::int64_t column = (first + u * blockDim.x) * N;
    if (column >= shape.width) continue;
    const std::int64_t channel = shape.first_channel + column;
    Lanes<C, N> value = unpack(in[u]);
    if constexpr (N == 1) {
      const PhiloxBlock block = drawn.draw(channel / 4);
      const int of_four = static_cast<int>(channel % 4);
      value[0] = pass(value[0], of_four < 2    ? block.word[of_four == 1]
                                : of_four == 2 ? block.word[2]
                                               : block.word[3]);
    } else {
#pragma unroll
      for (int group = 0; group < N / 4; ++group) {
        const PhiloxBlock block = drawn.draw(channel / 4 + group);
#pragma unroll
        for (int i = 0; i < 4; ++i) value[4 * group + i] = pass(value[4 * group + i], block.word[i]);
      }
    }
    store_lanes(y + row * shape.width + column, value);
  }
}

}  // namespace

template <class T>
void dropout(const T* x, const std::int64_t* samples, const double* seed, T* y, const DropoutShape& shape,
             Stream stream) {
  const std::int64_t elements = shape.batch * shape.seq * shape.width;
  if (shape.p == 0 && x != y) copy(x, y, elements * static_cast<std::int64_t>(sizeof(T)), stream);
  if (shape.p == 0 || elements == 0) return;
  constexpr int wide = std::max(4, chunk<T>);
  const auto launch = [&]<int N>(std::integral_constant<int, N>) {
    const RowGrid at(shape.batch * shape.seq, ceil_div(shape.width / N, dropout_unroll));
    dropout_kernel<N>
        <<<at.grid, at.block, 0, stream>>>(x, samples, seed, y, shape, DropChance<Compute<T>>(shape.p));
  };
  if (shape.width % wide == 0 && shape.first_channel % 4 == 0 && aligned({x, y}))
    launch(std::integral_constant<int, wide>());
  else
    launch(std::integral_constant<int, 1>());
  check_launch("dropout");
}

#define PRUN_DROPOUT(T) \
  template void dropout<T>(const T*, const std::int64_t*, const double*, T*, const DropoutShape&, Stream)
PRUN_DROPOUT(double);
PRUN_DROPOUT(float);
PRUN_DROPOUT(bf16);
PRUN_DROPOUT(f16);

}  // namespace prun::cuda
