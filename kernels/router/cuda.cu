#include "router/cuda.hpp"

#include <algorithm>

#include "cuda/grouped.cuh"
#include "router/cuda_tensor.cuh"

namespace prun::cuda {
namespace {

struct Extents {
  std::int64_t m, n, k;
};

// Computes part [slice, i, j] = sum over the slice's k of left(k, i) * right(k, j), each operand [k, i] in
// memory or, by rows, [i, k].
template <class A, class B, class Out, bool left_by_rows, bool right_by_rows>
__global__ __launch_bounds__(grouped::threads) void product_kernel(const A* left, const B* right, Out* part,
                                                                   Extents extents, std::int64_t slice) {
  using C = Compute<A>;
  using namespace grouped;
  __shared__ Tiles<C> at;
  const auto [m, n, k] = extents;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * tile,
                     column = static_cast<std::int64_t>(blockIdx.y) * tile, begin = blockIdx.z * slice,
                     end = begin + slice < k ? begin + slice : k;
  C sums[each][each] = {};
  for (std::int64_t step = begin; step < end; step += depth) {
    fill<left_by_rows>(at.left, [&](int kk, int i) {
      if (row + i >= m || step + kk >= end) return C(0);
      return static_cast<C>(
          load(left + (left_by_rows ? (row + i) * k + step + kk : (step + kk) * m + row + i)));
    });
    fill<right_by_rows>(at.right, [&](int kk, int j) {
      if (column + j >= n || step + kk >= end) return C(0);
      return static_cast<C>(
          load(right + (right_by_rows ? (column + j) * k + step + kk : (step + kk) * n + column + j)));
    });
    __syncthreads();
    multiply(at, sums);
    __syncthreads();
  }
  part += blockIdx.z * m * n;
  const int i0 = static_cast<int>(threadIdx.x) / 16 * each, j0 = static_cast<int>(threadIdx.x) % 16 * each;
  for (int i = 0; i < each; ++i)
    for (int j = 0; j < each; ++j)
      if (row + i0 + i < m && column + j0 + j < n)
        store(part + (row + i0 + i) * n + column + j0 + j, sums[i][j]);
}

// Does the same on tensor cores.
template <class A, class Out, bool left_by_rows, bool right_by_rows>
__global__ __launch_bounds__(router_parts::threads) void tensor_product_kernel(const A* left,
                                                                               const bf16* right, Out* part,
                                                                               Extents extents,
                                                                               std::int64_t slice) {
  using namespace router_parts;
  const auto [m, n, k] = extents;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * tile,
                     column = static_cast<std::int64_t>(blockIdx.y) * tile, begin = blockIdx.z * slice,
                     end = begin + slice < k ? begin + slice : k;
  const Source<A> from_left =
      left_by_rows ? Source<A>{left, k, row, m, begin, end} : Source<A>{left, m, begin, end, row, m};
  const Source<bf16> from_right = right_by_rows ? Source<bf16>{right, k, column, n, begin, end}
                                                : Source<bf16>{right, n, begin, end, column, n};
  const std::int64_t steps = begin < end ? (end - begin + tile - 1) / tile : 0;
  multiply_tile<A, Out, left_by_rows, right_by_rows>(from_left, from_right, steps, part + blockIdx.z * m * n,
                                                     row, column, m, n);
}

// Says whether rows consist of whole chunks of 16 bytes.
template <bool left_by_rows, bool right_by_rows>
bool fits_tensor_cores(std::initializer_list<const void*> pointers, const Extents& e) {
  return aligned(pointers) && (left_by_rows ? e.k : e.m) % 8 == 0 && (right_by_rows ? e.k : e.n) % 8 == 0 &&
         e.n % 8 == 0;
}

// Sets to[i], or adds to it, the sum of its parts, in order.
template <class C, class Out, bool adds>
__global__ __launch_bounds__(256) void fold_kernel(const C* part, std::int64_t slices, Out* to,
                                                   std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  C sum = 0;
#pragma unroll 8
  for (std::int64_t s = 0; s < slices; ++s) sum += part[s * count + i];
  store(to + i, adds ? sum + static_cast<C>(load(to + i)) : sum);
}

template <class A, class B, class Out, bool left_by_rows, bool right_by_rows>
void multiply_in(std::int64_t slices, const A* left, const B* right, Out* part, const Extents& e,
                 Stream stream) {
  const std::int64_t slice = ceil_div(ceil_div(e.k, slices), grouped::depth) * grouped::depth;
  const dim3 grid(grid_of(ceil_div(e.m, grouped::tile)), grid_of(ceil_div(e.n, grouped::tile)),
                  grid_of(slices));
  if constexpr (std::is_same_v<B, bf16>)
    if (fits_tensor_cores<left_by_rows, right_by_rows>({left, right, part}, e)) {
      tensor_product_kernel<A, Out, left_by_rows, right_by_rows>
          <<<grid, router_parts::threads, 0, stream>>>(left, right, part, e, slice);
      return;
    }
  product_kernel<A, B, Out, left_by_rows, right_by_rows>
      <<<grid, grouped::threads, 0, stream>>>(left, right, part, e, slice);
}

template <bool adds, class C, class Out>
void fold(const C* part, std::int64_t slices, Out* to, const Extents& e, Stream stream) {
  fold_kernel<C, Out, adds>
      <<<grid_of(ceil_div(e.m * e.n, 256)), 256, 0, stream>>>(part, slices, to, e.m * e.n);
}

// A position's scores must depend on its channels alone, so on no other extent.
std::int64_t score_slices(const RouterShape& s) { return std::clamp<std::int64_t>(s.hidden / 512, 1, 8); }

// Returns so many that the blocks keep a GPU busy, each of which has the partial sums of one tile.
std::int64_t gradient_slices(const RouterShape& s) {
  constexpr std::int64_t blocks = 1024, least = 256;
  const std::int64_t tiles = ceil_div(s.routes, grouped::tile) * ceil_div(s.hidden, grouped::tile);
  return std::clamp<std::int64_t>(std::min(blocks / tiles, s.rows / least), 1, blocks);
}

}  // namespace

std::int64_t router_workspace(const RouterShape& s, std::int64_t size) {
  return score_slices(s) * s.rows * s.routes * size;
}

std::int64_t router_weight_grad_workspace(const RouterShape& s, std::int64_t size) {
  return gradient_slices(s) * s.routes * s.hidden * size;
}

template <class T>
void router(const T* x, const T* weight, Compute<T>* logits, const RouterShape& s, Compute<T>* workspace,
            Stream stream) {
  const Extents e{s.rows, s.routes, s.hidden};
  multiply_in<T, T, Compute<T>, true, true>(score_slices(s), x, weight, workspace, e, stream);
  fold<false>(workspace, score_slices(s), logits, e, stream);
  check_launch("router");
}

template <class T>
void router_input_grad(const Compute<T>* dlogits, const T* weight, T* dx, const RouterShape& s,
                       Stream stream) {
  multiply_in<Compute<T>, T, T, true, false>(1, dlogits, weight, dx, {s.rows, s.hidden, s.routes}, stream);
  check_launch("router_input_grad");
}

template <class T, class S>
void router_weight_grad(const T* x, const Compute<T>* dlogits, const Sum<S>& dweight, const RouterShape& s,
                        Compute<T>* workspace, Stream stream) {
  using C = Compute<T>;
  const Extents e{s.routes, s.hidden, s.rows};
  multiply_in<C, T, C, false, false>(gradient_slices(s), dlogits, x, workspace, e, stream);
  if (dweight.begins)
    fold<false>(workspace, gradient_slices(s), dweight.data, e, stream);
  else
    fold<true>(workspace, gradient_slices(s), dweight.data, e, stream);
  check_launch("router_weight_grad");
}

#define PRUN_ROUTER(T)                                                                                      \
  template void router(const T*, const T*, Compute<T>*, const RouterShape&, Compute<T>*, Stream);           \
  template void router_input_grad(const Compute<T>*, const T*, T*, const RouterShape&, Stream);             \
  template void router_weight_grad(const T*, const Compute<T>*, const Sum<Compute<T>>&, const RouterShape&, \
                                   Compute<T>*, Stream);
PRUN_ROUTER(double)
PRUN_ROUTER(float)
PRUN_ROUTER(bf16)
PRUN_ROUTER(f16)
#undef PRUN_ROUTER
template void router_weight_grad(const bf16*, const float*, const Sum<bf16>&, const RouterShape&, float*,
                                 Stream);

}  // namespace prun::cuda
