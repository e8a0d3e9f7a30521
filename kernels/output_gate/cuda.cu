#include "output_gate/cuda.hpp"

#include "cuda/math.cuh"

namespace prun::cuda {
namespace {

using Index = std::int64_t;

constexpr int threads = 256;

__device__ inline Index element_of_thread() {
  return static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
}
unsigned blocks_for(Index elements) { return grid_of(ceil_div(elements, threads)); }

template <class T>
__global__ void output_gate_kernel(const T* x, const T* gate, T* y, Index count, bool silu) {
  const Index i = element_of_thread();
  if (i >= count) return;
  const Compute<T> g = load(gate + i), by = sigmoid<T>(g).value;
  store(y + i, load(x + i) * (silu ? by * g : by));
}

// With s the sigmoid of the gate g, the slope is s (1 - s), and of silu s (1 + g (1 - s)).
template <class T, class C = Compute<T>>
__global__ void output_gate_grad_kernel(const T* dy, const T* x, const T* gate, T* dgate, Index count,
                                        bool silu) {
  const Index i = element_of_thread();
  if (i >= count) return;
  const C g = load(gate + i);
  const Sigmoid<C> s = sigmoid<T>(g);
  store(dgate + i, load(dy + i) * load(x + i) * s.value * (silu ? C(1) + g * s.rest : s.rest));
}

template <class T>
__global__ void split_gate_kernel(const T* x, T* y, T* gate, Index slots, Index width) {
  const Index i = element_of_thread(), slot = i / width;
  if (slot >= slots) return;
  const Index from = 2 * slot * width + i % width;
  y[i] = x[from];
  gate[i] = x[from + width];
}

template <class T>
__global__ void join_gate_kernel(const T* y, const T* gate, T* x, Index slots, Index width) {
  const Index i = element_of_thread(), slot = i / width;
  if (slot >= slots) return;
  const Index to = 2 * slot * width + i % width;
  x[to] = y[i];
  x[to + width] = gate[i];
}

}  // namespace

template <class T>
void output_gate(const T* x, const T* gate, T* y, std::int64_t count, bool silu, Stream stream) {
  output_gate_kernel<T><<<blocks_for(count), threads, 0, stream>>>(x, gate, y, count, silu);
  check_launch("output_gate");
}

template <class T>
void output_gate_grad(const T* dy, const T* x, const T* gate, T* dgate, std::int64_t count, bool silu,
                      Stream stream) {
  output_gate_grad_kernel<T><<<blocks_for(count), threads, 0, stream>>>(dy, x, gate, dgate, count, silu);
  check_launch("output_gate_grad");
}

template <class T>
void split_gate(const T* x, T* y, T* gate, std::int64_t slots, std::int64_t width, Stream stream) {
  split_gate_kernel<T><<<blocks_for(slots * width), threads, 0, stream>>>(x, y, gate, slots, width);
  check_launch("split_gate");
}

template <class T>
void join_gate(const T* y, const T* gate, T* x, std::int64_t slots, std::int64_t width, Stream stream) {
  join_gate_kernel<T><<<blocks_for(slots * width), threads, 0, stream>>>(y, gate, x, slots, width);
  check_launch("join_gate");
}

#define PRUN_OUTPUT_GATE(T)                                                                     \
  template void output_gate(const T*, const T*, T*, std::int64_t, bool, Stream);                \
  template void output_gate_grad(const T*, const T*, const T*, T*, std::int64_t, bool, Stream); \
  template void split_gate(const T*, T*, T*, std::int64_t, std::int64_t, Stream);               \
  template void join_gate(const T*, const T*, T*, std::int64_t, std::int64_t, Stream);
PRUN_OUTPUT_GATE(double)
PRUN_OUTPUT_GATE(float)
PRUN_OUTPUT_GATE(bf16)
PRUN_OUTPUT_GATE(f16)
#undef PRUN_OUTPUT_GATE

}  // namespace prun::cuda
