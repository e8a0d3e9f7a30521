#include "norm/cuda.hpp"

#include "bias/cuda.hpp"
#include "cuda/async.cuh"
#include "cuda/column_sum.cuh"

namespace prun::cuda {
namespace {

template <class C>
__device__ C reciprocal_root(C x) {
  return C(1) / sqrt(x);
}

// Is for rmsnorm alone.
template <bool centered, class C, int N>
__device__ Lanes<C, N> with_offset(Lanes<C, N> gain, double offset) {
  if constexpr (!centered)
#pragma unroll
    for (int i = 0; i < N; ++i) gain[i] += static_cast<C>(offset);
  return gain;
}

// ---------------------------------------------------------------- forward
// Returns the threads of a block that has a row in registers, `chunks` 16-byte pieces and at most `held` of
// them a thread.
int row_threads(std::int64_t chunks, int held) {
  return static_cast<int>(ceil_div(ceil_div(chunks, held), 32) * 32);
}

inline constexpr int forward_held = 4, forward_threads = 512;

// A block has a row in its registers: every value is read once.
template <class T, int N, bool centered>
__global__ __launch_bounds__(forward_threads) void norm_kernel(NormForward<T> norm) {
  using C = Compute<T>;
  constexpr int K = forward_held;
  __shared__ C scratch[2][32];
  const std::int64_t row = blockIdx.x, offset = row * norm.width;
  const C count = static_cast<C>(norm.width);
  const auto column = [&](int k) { return static_cast<int>(k * blockDim.x + threadIdx.x) * N; };
  const auto inside = [&](int k) { return column(k) < norm.width; };

  Pack<T, N> x[K], residual[K], gain[K], bias[K];
#pragma unroll
  for (int k = 0; k < K; ++k)
    if (inside(k)) {
      x[k] = load_pack<N>(norm.x + offset + column(k));
      if (norm.residual) residual[k] = load_pack<N>(norm.residual + offset + column(k));
    }
#pragma unroll
  for (int k = 0; k < K; ++k)
    if (inside(k)) {
      gain[k] = load_pack<N>(norm.gain + column(k));
      if (centered && norm.bias) bias[k] = load_pack<N>(norm.bias + column(k));
    }
  if (norm.residual) {
#pragma unroll
    for (int k = 0; k < K; ++k)
      if (inside(k)) {
        Lanes<C, N> sum = unpack(x[k]);
        const Lanes<C, N> other = unpack(residual[k]);
#pragma unroll
        for (int i = 0; i < N; ++i) sum[i] += other[i];
        x[k] = pack<T>(sum);
        store_pack(norm.sum + offset + column(k), x[k]);
      }
  }

  C mean = 0;
  if constexpr (centered) {
    C sum = 0;
#pragma unroll
    for (int k = 0; k < K; ++k)
      if (inside(k)) {
        const Lanes<C, N> value = unpack(x[k]);
#pragma unroll
        for (int i = 0; i < N; ++i) sum += value[i];
      }
    mean = block_fold(sum, C(0), Add(), scratch[0]) / count;
  }
  C square = 0;
#pragma unroll
  for (int k = 0; k < K; ++k)
    if (inside(k)) {
      const Lanes<C, N> value = unpack(x[k]);
#pragma unroll
      for (int i = 0; i < N; ++i) square += (value[i] - mean) * (value[i] - mean);
    }
  const C rstd =
      reciprocal_root(block_fold(square, C(0), Add(), scratch[1]) / count + static_cast<C>(norm.eps));

#pragma unroll
  for (int k = 0; k < K; ++k)
    if (inside(k)) {
      Lanes<C, N> value = unpack(x[k]);
      const Lanes<C, N> factor = with_offset<centered>(unpack(gain[k]), norm.offset);
#pragma unroll
      for (int i = 0; i < N; ++i) value[i] = (value[i] - mean) * rstd * factor[i];
      if (centered && norm.bias) {
        const Lanes<C, N> shift = unpack(bias[k]);
#pragma unroll
        for (int i = 0; i < N; ++i) value[i] += shift[i];
      }
      store_lanes(norm.y + offset + column(k), value);
    }
  if (threadIdx.x == 0) {
    if (centered) norm.mean[row] = mean;
    norm.rstd[row] = rstd;
  }
}

inline constexpr int loop_threads = 256;

// Takes rows of any width and at any address: it reads them value by value, again for every sum.
template <class T, bool centered>
__global__ __launch_bounds__(loop_threads) void norm_loop_kernel(NormForward<T> norm) {
  using C = Compute<T>;
  __shared__ C scratch[2][32];
  const std::int64_t row = blockIdx.x, offset = row * norm.width;
  const C count = static_cast<C>(norm.width);
  const T* in = norm.x + offset;
  if (norm.residual) {
    for (std::int64_t c = threadIdx.x; c < norm.width; c += loop_threads)
      store(norm.sum + offset + c, load(in + c) + load(norm.residual + offset + c));
    in = norm.sum + offset;  // each thread reads the values it has written
  }
  C mean = 0;
  if constexpr (centered) {
    C sum = 0;
    for (std::int64_t c = threadIdx.x; c < norm.width; c += loop_threads) sum += load(in + c);
    mean = block_fold(sum, C(0), Add(), scratch[0]) / count;
  }
  C square = 0;
  for (std::int64_t c = threadIdx.x; c < norm.width; c += loop_threads) {
    const C difference = load(in + c) - mean;
    square += difference * difference;
  }
  const C rstd =
      reciprocal_root(block_fold(square, C(0), Add(), scratch[1]) / count + static_cast<C>(norm.eps));
  for (std::int64_t c = threadIdx.x; c < norm.width; c += loop_threads) {
    const C shift = centered && norm.bias ? load(norm.bias + c) : C(0);
    const C factor = load(norm.gain + c) + (centered ? C(0) : static_cast<C>(norm.offset));
    store(norm.y + offset + c, (load(in + c) - mean) * rstd * factor + shift);
  }
  if (threadIdx.x == 0) {
    if (centered) norm.mean[row] = mean;
    norm.rstd[row] = rstd;
  }
}

template <class T, bool centered>
void launch_norm(const char* name, const NormForward<T>& norm, Stream stream) {
  if (norm.rows == 0) return;
  constexpr int N = chunk<T>;
  const std::int64_t chunks = norm.width / N;
  const bool fits = norm.width % N == 0 && chunks <= forward_held * forward_threads;
  if (fits && aligned({norm.x, norm.residual, norm.sum, norm.gain, norm.bias, norm.y}))
    norm_kernel<T, N, centered><<<grid_of(norm.rows), row_threads(chunks, forward_held), 0, stream>>>(norm);
  else
    norm_loop_kernel<T, centered><<<grid_of(norm.rows), loop_threads, 0, stream>>>(norm);
  check_launch(name);
}

// ---------------------------------------------------------------- backward
// Holds the sums over a row that its dx needs.
template <class C>
struct Averages {
  C flat;   // sums g = dy * gain; 0 where the norm does not center
  C slope;  // sums g * xhat
};

// The threads of a block that share a row have the same threadIdx.y and are whole warps.
template <class C, bool centered>
__device__ Averages<C> fold_averages(Averages<C> sums, C count, C* flat, C* slope) {
  if (centered) sums.flat = warp_fold(sums.flat, Add());
  sums.slope = warp_fold(sums.slope, Add());
  const int warps = static_cast<int>(blockDim.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int first = static_cast<int>(threadIdx.y) * warps;
  if (warps > 1) {
    if (lane == 0) {
      if (centered) flat[first + threadIdx.x / 32] = sums.flat;
      slope[first + threadIdx.x / 32] = sums.slope;
    }
    __syncthreads();
    if (centered) sums.flat = warp_fold(lane < warps ? flat[first + lane] : C(0), Add());
    sums.slope = warp_fold(lane < warps ? slope[first + lane] : C(0), Add());
  }
  return {sums.flat / count, sums.slope / count};
}

inline constexpr int backward_threads = 256;
template <int held>
inline constexpr int backward_blocks = held == 2 ? 3 : 2;  // counts blocks on a multiprocessor
inline constexpr int most_held_summed = 3;  // is what registers hold sums of the residual beside

// A persistent block has teams that take a row each, with K chunks a thread. The next row is on its way to
// shared memory while the present one is worked on, and the columns' sums of the weights' gradients, and of
// the residual if it is summed, stay in registers, so that dy, x and the residual are read once for all.
template <class T, int N, int K, bool centered, bool summed>
__global__ __launch_bounds__(backward_threads,
                             backward_blocks<K>) void norm_backward_kernel(NormBackward<T> norm) {
  using C = Compute<T>;
  extern __shared__ uint4 stages[];  // [stage][dy, x, residual][K][thread of the block]
  __shared__ C scratch[2][2][32];
  const C count = static_cast<C>(norm.width);
  const int threads = static_cast<int>(blockDim.x * blockDim.y);
  const int me = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  const auto column = [&](int k) { return static_cast<int>(k * blockDim.x + threadIdx.x) * N; };
  const auto inside = [&](int k) { return column(k) < norm.width; };
  const auto slot = [&](int stage, int array, int k) {
    return reinterpret_cast<T*>(stages + ((stage * 3 + array) * K + k) * threads + me);
  };

  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.y;  // the row of the first team
  C next_mean = 0, next_rstd = 0;
  const auto fetch = [&](std::int64_t number, int stage) {
    if (number < norm.rows) {
#pragma unroll
      for (int k = 0; k < K; ++k)
        if (inside(k)) {
          const std::int64_t at = number * norm.width + column(k);
          copy_async(slot(stage, 0, k), norm.dy + at);
          copy_async(slot(stage, 1, k), norm.x + at);
          if (norm.residual) copy_async(slot(stage, 2, k), norm.residual + at);
        }
      if (centered) next_mean = norm.mean[number];
      next_rstd = norm.rstd[number];
    }
    commit_copies();
  };
  fetch(first + threadIdx.y, 0);
  constexpr bool gain_held = !centered || (K < 4 && !summed);  // keeps it in registers, if there are enough
  Pack<T, N> gain[K];
  Lanes<C, N> dgain[K] = {}, dbias[K] = {}, residual_sum[K] = {};
#pragma unroll
  for (int k = 0; k < K; ++k)
    if (gain_held && inside(k)) gain[k] = load_pack<N>(norm.gain + column(k));
  const auto factor_of = [&](int k) {
    return with_offset<centered>(unpack(gain_held ? gain[k] : load_pack<N>(norm.gain + column(k))),
                                 norm.offset);
  };

  for (int stage = 0; first < norm.rows; first += step, stage ^= 1) {
    const std::int64_t row = first + threadIdx.y;
    const bool has_row = row < norm.rows;  // the last turn may have none for some teams
    const C mean = next_mean, rstd = next_rstd;
    fetch(row + step, stage ^ 1);
    wait_copies<1>();
    Averages<C> sums = {};
#pragma unroll
    for (int k = 0; k < K; ++k)
      if (has_row && inside(k)) {
        const Lanes<C, N> d = load_lanes<N>(slot(stage, 0, k)), x = load_lanes<N>(slot(stage, 1, k));
        const Lanes<C, N> factor = factor_of(k);
#pragma unroll
        for (int i = 0; i < N; ++i) {
          const C xhat = (x[i] - mean) * rstd, g = d[i] * factor[i];
          if (centered) sums.flat += g;
          sums.slope += g * xhat;
          dgain[k][i] += d[i] * xhat;
          if (centered) dbias[k][i] += d[i];
        }
      }
    const Averages<C> average = fold_averages<C, centered>(sums, count, scratch[stage][0], scratch[stage][1]);
#pragma unroll
    for (int k = 0; k < K; ++k)
      if (has_row && inside(k)) {
        const Lanes<C, N> d = load_lanes<N>(slot(stage, 0, k)), x = load_lanes<N>(slot(stage, 1, k));
        const Lanes<C, N> factor = factor_of(k);
        Lanes<C, N> dx;
#pragma unroll
        for (int i = 0; i < N; ++i) {
          const C xhat = (x[i] - mean) * rstd;
          dx[i] = rstd * ((d[i] * factor[i] - average.flat) - xhat * average.slope);
        }
        if (norm.residual) {
          const Lanes<C, N> by = load_lanes<N>(slot(stage, 2, k));
          dx = unpack(pack<T>(dx));  // is rounded as if written and added to
#pragma unroll
          for (int i = 0; i < N; ++i) {
            dx[i] += by[i];
            if (summed) residual_sum[k][i] += by[i];
          }
        }
        store_lanes(norm.dx + row * norm.width + column(k), dx);
      }
  }
  if (!norm.workspace) return;
  constexpr int weights = centered ? 2 : 1, count_of_sums = weights + (summed ? 1 : 0);
  C* parts =
      static_cast<C*>(norm.workspace) + static_cast<std::int64_t>(blockIdx.x) * count_of_sums * norm.width;
  // The teams' sums are added up in the teams' order.
  C* shared = reinterpret_cast<C*>(stages);
  const auto place = [&](int which, int k, int i, int thread) {
    return ((which * K + k) * N + i) * threads + thread;
  };
  wait_copies<0>();
  __syncthreads();
#pragma unroll
  for (int k = 0; k < K; ++k)
#pragma unroll
    for (int i = 0; i < N; ++i) {
      shared[place(0, k, i, me)] = dgain[k][i];
      if (centered) shared[place(1, k, i, me)] = dbias[k][i];
      if (summed) shared[place(weights, k, i, me)] = residual_sum[k][i];
    }
  __syncthreads();
  if (threadIdx.y != 0) return;
  for (int which = 0; which < count_of_sums; ++which)
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (!inside(k)) continue;
      Lanes<C, N> sum = {};
      for (unsigned team = 0; team < blockDim.y; ++team)
#pragma unroll
        for (int i = 0; i < N; ++i)
          sum[i] += shared[place(which, k, i, static_cast<int>(team * blockDim.x + threadIdx.x))];
      store_lanes(parts + which * norm.width + column(k), sum);
    }
}

template <class T, bool centered>
__global__ __launch_bounds__(loop_threads) void norm_input_grad_loop_kernel(NormBackward<T> norm) {
  using C = Compute<T>;
  __shared__ C scratch[2][32];
  const std::int64_t row = blockIdx.x, offset = row * norm.width;
  const C mean = centered ? norm.mean[row] : C(0), rstd = norm.rstd[row];
  const C shifted = centered ? C(0) : static_cast<C>(norm.offset);
  Averages<C> sums = {};
  for (std::int64_t c = threadIdx.x; c < norm.width; c += loop_threads) {
    const C g = load(norm.dy + offset + c) * (load(norm.gain + c) + shifted);
    sums.flat += g;
    sums.slope += g * ((load(norm.x + offset + c) - mean) * rstd);
  }
  const Averages<C> average =
      fold_averages<C, centered>(sums, static_cast<C>(norm.width), scratch[0], scratch[1]);
  for (std::int64_t c = threadIdx.x; c < norm.width; c += loop_threads) {
    const C xhat = (load(norm.x + offset + c) - mean) * rstd, flat = centered ? average.flat : C(0);
    const C g = load(norm.dy + offset + c) * (load(norm.gain + c) + shifted);
    C dx = rstd * ((g - flat) - xhat * average.slope);
    if (norm.residual) dx = unpack(pack<T>(Lanes<C, 1>{{dx}}))[0] + load(norm.residual + offset + c);
    store(norm.dx + offset + c, dx);
  }
}

// Gives column_sums its terms where the weights' gradients are computed by themselves.
template <class T, int N, bool centered>
struct WeightTerms {
  using C = Compute<T>;
  NormBackward<T> norm;
  static constexpr int unroll = 4;
  struct Row {
    Pack<T, N> dy, x;
    C mean, rstd;
  };
  __device__ Row load(int row, std::int64_t at) const {
    return {load_pack<N>(norm.dy + at), load_pack<N>(norm.x + at), centered ? norm.mean[row] : C(0),
            norm.rstd[row]};
  }
  template <int Count>
  __device__ void add(const Row& r, int, std::int64_t, Lanes<C, N> (&sums)[Count]) const {
    const Lanes<C, N> d = unpack(r.dy), value = unpack(r.x);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      sums[0][i] += d[i] * ((value[i] - r.mean) * r.rstd);
      if constexpr (centered) sums[1][i] += d[i];
    }
  }
};

template <bool centered, bool summed, class T, class S>
auto accumulators(const NormBackward<T, S>& norm) {
  if constexpr (centered && summed)
    return Accumulators<S, 3>{{norm.dgain, norm.dbias, norm.residual_sum}};
  else if constexpr (centered)
    return Accumulators<S, 2>{{norm.dgain, norm.dbias}};
  else if constexpr (summed)
    return Accumulators<S, 2>{{norm.dgain, norm.residual_sum}};
  else
    return Accumulators<S, 1>{{norm.dgain}};
}

// Returns the operands for kernels, which know no sums but parts of them in the workspace: that is null where
// there are no sums.
template <class T, class S>
NormBackward<T> without_sums(const NormBackward<T, S>& norm) {
  const bool summed = norm.dgain.data || norm.dbias.data || norm.residual_sum.data;
  PRUN_CHECK(!summed || norm.workspace, "a norm's sums need a workspace");
  return {norm.dy,    norm.x,  norm.gain, norm.mean, norm.rstd,  norm.residual,
          norm.dx,    nullptr, nullptr,   norm.rows, norm.width, summed ? norm.workspace : nullptr,
          norm.offset};
}

template <class T, bool centered, class Sums>
void weight_gradients(const char* name, const NormBackward<T>& norm, const Sums& sums, bool wide,
                      Stream stream) {
  const auto sum = [&]<int N>(std::integral_constant<int, N>) {
    column_sums<N>(name, stream, WeightTerms<T, N, centered>{norm}, norm.rows, norm.width, sums,
                   norm.workspace);
  };
  if (wide)
    sum(std::integral_constant<int, chunk<T>>());
  else
    sum(std::integral_constant<int, 1>());
}

template <class T, int K, bool centered, bool summed, class S>
void launch_fused(const char* name, const NormBackward<T, S>& all, Stream stream) {
  constexpr int N = chunk<T>;
  const NormBackward<T> norm = without_sums(all);
  const int threads = row_threads(norm.width / N, K), teams = std::max(1, backward_threads / threads);
  const std::int64_t blocks =
      std::min<std::int64_t>(ceil_div(norm.rows, teams), multiprocessors() * backward_blocks<K>);
  const int shared = 2 * 3 * K * threads * teams * 16;
  const auto kernel = norm_backward_kernel<T, N, K, centered, summed>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared), name);
  kernel<<<grid_of(blocks), dim3(static_cast<unsigned>(threads), static_cast<unsigned>(teams)),
           static_cast<std::size_t>(shared), stream>>>(norm);
  check_launch(name);
  if (norm.workspace)
    add_parts(name, stream, static_cast<const Compute<T>*>(norm.workspace), blocks, norm.width,
              accumulators<centered, summed>(all));
}

// Returns the number of chunks a thread that leaves the fewest threads idle; 0: a row is too wide.
int backward_held(std::int64_t chunks) {
  int best = 0;
  for (int held : {2, 3, 4})
    if (chunks <= held * backward_threads &&
        (best == 0 || held * row_threads(chunks, held) < best * row_threads(chunks, best)))
      best = held;
  return best;
}

// Computes the gradients in passes of their own, where a row does not fit in a block's registers.
template <class T, bool centered, class S>
void launch_apart(const char* name, const NormBackward<T, S>& all, bool wide, Stream stream) {
  const NormBackward<T> norm = without_sums(all);
  if (all.dgain.data || all.dbias.data)
    weight_gradients<T, centered>(name, norm, accumulators<centered, false>(all), wide, stream);
  if (!norm.dx) return;
  norm_input_grad_loop_kernel<T, centered><<<grid_of(norm.rows), loop_threads, 0, stream>>>(norm);
  check_launch(name);
}

template <class T, bool centered, class S>
void launch_backward(const char* name, const NormBackward<T, S>& all, Stream stream) {
  if (all.rows == 0) return;
  PRUN_CHECK(all.residual || !all.residual_sum.data, "a sum of a residual that is not there");
  constexpr int N = chunk<T>;
  const bool wide = all.width % N == 0 && aligned({all.dy, all.x, all.gain, all.residual, all.dx});
  const int held = wide && all.dx ? backward_held(all.width / N) : 0;
  const bool summed = all.residual_sum.data && held > 0 && held <= most_held_summed;
  if (all.residual_sum.data && !summed)  // in front, since dx may lie where the residual does
    bias_grad<T, S>(all.residual, all.residual_sum, all.rows, all.width, all.workspace, stream);
  const auto fused = [&]<int K>(std::integral_constant<int, K>) {
    if constexpr (K <= most_held_summed)
      if (summed) return launch_fused<T, K, centered, true>(name, all, stream);
    launch_fused<T, K, centered, false>(name, all, stream);
  };
  switch (held) {
    case 2: fused(std::integral_constant<int, 2>()); break;
    case 3: fused(std::integral_constant<int, 3>()); break;
    case 4: fused(std::integral_constant<int, 4>()); break;
    default: launch_apart<T, centered>(name, all, wide, stream);
  }
}

}  // namespace

template <class T>
void layernorm(const NormForward<T>& norm, Stream stream) {
  launch_norm<T, true>("layernorm", norm, stream);
}

template <class T>
void rmsnorm(const NormForward<T>& norm, Stream stream) {
  launch_norm<T, false>("rmsnorm", norm, stream);
}

template <class T>
std::int64_t norm_backward_workspace(std::int64_t rows, std::int64_t width) {
  const std::int64_t blocks = std::min<std::int64_t>(rows, backward_blocks<2> * most_multiprocessors);
  return std::max(column_sum_workspace<Compute<T>>(rows, width, 2),
                  3 * blocks * width * static_cast<std::int64_t>(sizeof(Compute<T>)));
}

template <class T, class S>
void layernorm_backward(const NormBackward<T, S>& norm, Stream stream) {
  launch_backward<T, true>("layernorm_backward", norm, stream);
}

template <class T, class S>
void rmsnorm_backward(const NormBackward<T, S>& norm, Stream stream) {
  launch_backward<T, false>("rmsnorm_backward", norm, stream);
}

#define PRUN_NORM_BACKWARD(T, S)                                             \
  template void layernorm_backward<T, S>(const NormBackward<T, S>&, Stream); \
  template void rmsnorm_backward<T, S>(const NormBackward<T, S>&, Stream)
PRUN_NORM_BACKWARD(bf16, bf16);

#define PRUN_NORM(T)                                                            \
  template void layernorm<T>(const NormForward<T>&, Stream);                    \
  template void rmsnorm<T>(const NormForward<T>&, Stream);                      \
  template std::int64_t norm_backward_workspace<T>(std::int64_t, std::int64_t); \
  PRUN_NORM_BACKWARD(T, Compute<T>)
PRUN_NORM(double);
PRUN_NORM(float);
PRUN_NORM(bf16);
PRUN_NORM(f16);

}  // namespace prun::cuda
