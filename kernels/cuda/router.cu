#include "cuda/router.hpp"

#include "cuda/grouped.cuh"

namespace prun::cuda {
namespace {

// to[i, j] (+)= sum over k of left(k, i) * right(k, j), each operand [k, i] in memory or, by rows, [i, k].
template <class A, class B, class Out, bool left_by_rows, bool right_by_rows, bool adds>
__global__ __launch_bounds__(grouped::threads) void product_kernel(const A* left, const B* right, Out* to,
                                                                   std::int64_t m, std::int64_t n,
                                                                   std::int64_t k) {
  using C = Compute<A>;
  using namespace grouped;
  __shared__ Tiles<C> at;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * tile,
                     column = static_cast<std::int64_t>(blockIdx.y) * tile;
  C sums[each][each] = {};
  for (std::int64_t step = 0; step < k; step += depth) {
    fill<left_by_rows>(at.left, [&](int kk, int i) {
      if (row + i >= m || step + kk >= k) return C(0);
      return static_cast<C>(
          load(left + (left_by_rows ? (row + i) * k + step + kk : (step + kk) * m + row + i)));
    });
    fill<right_by_rows>(at.right, [&](int kk, int j) {
      if (column + j >= n || step + kk >= k) return C(0);
      return static_cast<C>(
          load(right + (right_by_rows ? (column + j) * k + step + kk : (step + kk) * n + column + j)));
    });
    __syncthreads();
    multiply(at, sums);
    __syncthreads();
  }
  const int i0 = static_cast<int>(threadIdx.x) / 16 * each, j0 = static_cast<int>(threadIdx.x) % 16 * each;
  for (int i = 0; i < each; ++i)
    for (int j = 0; j < each; ++j) {
      if (row + i0 + i >= m || column + j0 + j >= n) continue;
      Out* const own = to + (row + i0 + i) * n + column + j0 + j;
      store(own, adds ? sums[i][j] + static_cast<C>(load(own)) : sums[i][j]);
    }
}

dim3 grid_for(std::int64_t m, std::int64_t n) {
  return {grid_of(ceil_div(m, grouped::tile)), grid_of(ceil_div(n, grouped::tile)), 1};
}

}  // namespace

template <class T>
void router(const T* x, const T* weight, Compute<T>* logits, const RouterShape& s, Stream stream) {
  using C = Compute<T>;
  product_kernel<T, T, C, true, true, false><<<grid_for(s.rows, s.routes), grouped::threads, 0, stream>>>(
      x, weight, logits, s.rows, s.routes, s.hidden);
  check_launch("router");
}

template <class T>
void router_input_grad(const Compute<T>* dlogits, const T* weight, T* dx, const RouterShape& s,
                       Stream stream) {
  using C = Compute<T>;
  product_kernel<C, T, T, true, false, false><<<grid_for(s.rows, s.hidden), grouped::threads, 0, stream>>>(
      dlogits, weight, dx, s.rows, s.hidden, s.routes);
  check_launch("router_input_grad");
}

template <class T, class S>
void router_weight_grad(const T* x, const Compute<T>* dlogits, const Sum<S>& dweight, const RouterShape& s,
                        Stream stream) {
  using C = Compute<T>;
  const dim3 grid = grid_for(s.routes, s.hidden);
  if (dweight.begins)
    product_kernel<C, T, S, false, false, false>
        <<<grid, grouped::threads, 0, stream>>>(dlogits, x, dweight.data, s.routes, s.hidden, s.rows);
  else
    product_kernel<C, T, S, false, false, true>
        <<<grid, grouped::threads, 0, stream>>>(dlogits, x, dweight.data, s.routes, s.hidden, s.rows);
  check_launch("router_weight_grad");
}

#define PRUN_ROUTER(T)                                                                                      \
  template void router(const T*, const T*, Compute<T>*, const RouterShape&, Stream);                        \
  template void router_input_grad(const Compute<T>*, const T*, T*, const RouterShape&, Stream);             \
  template void router_weight_grad(const T*, const Compute<T>*, const Sum<Compute<T>>&, const RouterShape&, \
                                   Stream);
PRUN_ROUTER(double)
PRUN_ROUTER(float)
PRUN_ROUTER(bf16)
PRUN_ROUTER(f16)
#undef PRUN_ROUTER
template void router_weight_grad(const bf16*, const float*, const Sum<bf16>&, const RouterShape&, Stream);

}  // namespace prun::cuda
