#include "gate/cuda.hpp"

#include "cuda/math.cuh"

namespace prun::cuda {
namespace {

template <class T>
__global__ void sigmoid_gate_kernel(const T* x, const T* gate, T* y, std::int64_t rows, std::int64_t width) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
  if (row >= rows || column >= width) return;
  store(y + row * width + column, sigmoid<T>(load(gate + row)).value * load(x + row * width + column));
}

template <class T>
__global__ __launch_bounds__(128) void sigmoid_gate_grad_kernel(const T* dy, const T* x, const T* gate,
                                                                T* dgate, std::int64_t width) {
  using C = Compute<T>;
  __shared__ C scratch[32];
  const std::int64_t row = blockIdx.x;
  C sum = 0;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x)
    sum += load(dy + row * width + i) * load(x + row * width + i);
  sum = block_fold(sum, C(0), Add(), scratch);
  const Sigmoid<C> s = sigmoid<T>(load(gate + row));
  if (threadIdx.x == 0) store(dgate + row, sum * s.value * s.rest);
}

}  // namespace

template <class T>
void sigmoid_gate(const T* x, const T* gate, T* y, std::int64_t rows, std::int64_t width, Stream stream) {
  const RowGrid grid(rows, width);
  sigmoid_gate_kernel<T><<<grid.grid, grid.block, 0, stream>>>(x, gate, y, rows, width);
  check_launch("sigmoid_gate");
}

template <class T>
void sigmoid_gate_grad(const T* dy, const T* x, const T* gate, T* dgate, std::int64_t rows,
                       std::int64_t width, Stream stream) {
  sigmoid_gate_grad_kernel<T><<<grid_of(rows), 128, 0, stream>>>(dy, x, gate, dgate, width);
  check_launch("sigmoid_gate_grad");
}

#define PRUN_GATE(T)                                                                      \
  template void sigmoid_gate(const T*, const T*, T*, std::int64_t, std::int64_t, Stream); \
  template void sigmoid_gate_grad(const T*, const T*, const T*, T*, std::int64_t, std::int64_t, Stream);
PRUN_GATE(double)
PRUN_GATE(float)
PRUN_GATE(bf16)
PRUN_GATE(f16)
#undef PRUN_GATE

}  // namespace prun::cuda
