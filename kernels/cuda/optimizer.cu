#include "cuda/optimizer.hpp"

#include "cuda/number_sum.cuh"
#include "update_rule.hpp"

namespace prun::cuda {
namespace {

// ---------------------------------------------------------------- many tensors in one launch
// The tensors travel as a kernel parameter, cut into pieces of equal length that persistent blocks take in
// turn.
inline constexpr int most_tensors = 384, update_threads = 256, update_blocks = 4;
inline constexpr std::int64_t piece_elements = 8192;

template <class Tensor>
struct Table {
  Tensor tensor[most_tensors];
  std::int32_t first_piece[most_tensors + 1];  // of each tensor; at the end the number of pieces
  std::int32_t count;
  std::int32_t wide;  // all tensors may be accessed in 16-byte chunks
};

template <class Tensor>
struct Piece {
  const Tensor& tensor;
  std::int64_t begin, end;
};

template <class Tensor>
__device__ Piece<Tensor> piece_of(const Table<Tensor>& table, int piece) {
  int low = 0, high = table.count;  // the tensor lies in [low, high)
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (table.first_piece[middle] <= piece ? low : high) = middle;
  }
  const Tensor& tensor = table.tensor[low];
  const std::int64_t begin = (piece - table.first_piece[low]) * piece_elements;
  return {tensor, begin, min(begin + piece_elements, tensor.elements)};
}

// Calls each(N, index of the first) for the chunks of a piece that this thread has: 16 bytes of the widest
// type where the table allows, and one by one what is left.
template <int N, int unroll, class Tensor, class Each>
__device__ void each_chunk(const Piece<Tensor>& piece, bool wide, const Each& each) {
  std::int64_t done = piece.begin;
  if (wide) {
    done += (piece.end - piece.begin) / N * N;
#pragma unroll unroll
    for (std::int64_t i = piece.begin + threadIdx.x * N; i < done; i += update_threads * N)
      each(std::integral_constant<int, N>(), i);
  }
  for (std::int64_t i = done + threadIdx.x; i < piece.end; i += update_threads)
    each(std::integral_constant<int, 1>(), i);
}

// Calls launch(table, blocks) for tables of at most most_tensors tensors; `is_wide` says it of one tensor.
template <class Tensor, class IsWide, class Launch>
void each_table(std::span<const Tensor> tensors, IsWide is_wide, Launch launch) {
  const int most_blocks = update_blocks * multiprocessors();
  for (std::size_t first = 0; first < tensors.size(); first += most_tensors) {
    const auto some = tensors.subspan(first, std::min<std::size_t>(most_tensors, tensors.size() - first));
    Table<Tensor> table = {};
    table.wide = 1;
    std::int64_t pieces = 0;
    for (const Tensor& tensor : some) {
      table.tensor[table.count] = tensor;
      table.first_piece[table.count++] = static_cast<std::int32_t>(pieces);
      pieces += ceil_div(tensor.elements, piece_elements);
      table.wide &= is_wide(tensor);
    }
    PRUN_CHECK(pieces < (std::int64_t{1} << 31), "tensors of ", pieces, " pieces");
    table.first_piece[table.count] = static_cast<std::int32_t>(pieces);
    if (pieces > 0) launch(table, grid_of(std::min<std::int64_t>(pieces, most_blocks)));
  }
}

// ---------------------------------------------------------------- norm
template <class T>
__global__ __launch_bounds__(update_threads, update_blocks) void sum_squares_kernel(
    const __grid_constant__ Table<Values<T>> table, double* parts) {
  __shared__ double scratch[32];
  double sum = 0;
  for (int p = blockIdx.x; p < table.first_piece[table.count]; p += gridDim.x) {
    const Piece<Values<T>> piece = piece_of(table, p);
    each_chunk<chunk<T>, 4>(piece, table.wide, [&]<int N>(std::integral_constant<int, N>, std::int64_t i) {
      const Lanes<Compute<T>, N> value = load_lanes<N>(piece.tensor.data + i);
#pragma unroll
      for (int l = 0; l < N; ++l) sum += static_cast<double>(value[l]) * static_cast<double>(value[l]);
    });
  }
  sum = block_fold(sum, 0.0, Add(), scratch);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

__global__ void clip_factor_kernel(ClipFactor numbers, double limit) {
  const double norm = sqrt(*numbers.sum);
  *numbers.norm = norm;
  *numbers.clip = limit > 0 && norm > limit ? limit / norm : 1.0;
  *numbers.keep = isfinite(norm) && isfinite(*numbers.loss) && *numbers.halt == 0 ? 1.0 : 0.0;
}

template <class T>
__global__ __launch_bounds__(update_threads, update_blocks) void count_non_finite_kernel(
    const __grid_constant__ Table<CountedValues<T>> table, const double* keep) {
  __shared__ double scratch[32];
  if (*keep != 0) return;
  for (int p = blockIdx.x; p < table.first_piece[table.count]; p += gridDim.x) {
    const Piece<CountedValues<T>> piece = piece_of(table, p);
    double found = 0;
    each_chunk<chunk<T>, 1>(piece, table.wide, [&]<int N>(std::integral_constant<int, N>, std::int64_t i) {
      const Lanes<Compute<T>, N> value = load_lanes<N>(piece.tensor.data + i);
#pragma unroll
      for (int l = 0; l < N; ++l) found += isfinite(value[l]) ? 0.0 : 1.0;
    });
    found = block_fold(found, 0.0, Add(), scratch);
    if (threadIdx.x == 0 && found > 0) atomicAdd(piece.tensor.count, found);
    __syncthreads();
  }
}

// ---------------------------------------------------------------- updates
// Weights to update, wherever they lie: N of them from i on.
template <int N, class Tensor>
__device__ auto load_weights(const Tensor& tensor, std::int64_t i) {
  Lanes<std::remove_pointer_t<decltype(tensor.master)>, N> weights;
  if (tensor.master)
    weights = load_lanes<N>(tensor.master + i);
  else
    weights = load_lanes<N>(tensor.parameter + i);
  return weights;
}

template <int N, class Tensor, class C>
__device__ void store_weights(const Tensor& tensor, std::int64_t i, const Lanes<C, N>& weights) {
  if (tensor.master) store_lanes(tensor.master + i, weights);
  store_lanes(tensor.parameter + i, weights);
}

template <class T>
__global__ __launch_bounds__(update_threads, update_blocks) void adamw_kernel(
    const __grid_constant__ Table<AdamTensor<T>> table, AdamSettings settings) {
  using C = Compute<T>;
  __shared__ AdamBias shared;
  if (*settings.keep == 0) return;
  if (threadIdx.x == 0) shared = AdamBias(settings.beta1, settings.beta2, *settings.step);
  __syncthreads();
  const AdamBias bias = shared;
  AdamStep<C> step(settings.beta1, settings.beta2, settings.eps, *settings.clip, bias);
  for (int p = blockIdx.x; p < table.first_piece[table.count]; p += gridDim.x) {
    const Piece<AdamTensor<T>> piece = piece_of(table, p);
    const AdamTensor<T>& t = piece.tensor;
    step.choose(Ieee::mul(*settings.lr, t.lr_scale), t.decay, bias);
    each_chunk<chunk<C>, 1>(piece, table.wide, [&]<int N>(std::integral_constant<int, N>, std::int64_t i) {
      const Lanes<C, N> gradient = load_lanes<N>(t.gradient + i);
      Lanes<C, N> m = load_lanes<N>(t.m + i), v = load_lanes<N>(t.v + i), weight = load_weights<N>(t, i);
#pragma unroll
      for (int l = 0; l < N; ++l) weight[l] = step.update(weight[l], gradient[l], m[l], v[l]);
      store_lanes(t.m + i, m);
      store_lanes(t.v + i, v);
      store_weights(t, i, weight);
    });
  }
}

template <class T>
__global__ __launch_bounds__(update_threads,
                             update_blocks) void sgd_kernel(const __grid_constant__ Table<SgdTensor<T>> table,
                                                            SgdSettings settings) {
  using C = Compute<T>;
  if (*settings.keep == 0) return;
  SgdStep<C> step(settings.momentum, *settings.clip);
  for (int p = blockIdx.x; p < table.first_piece[table.count]; p += gridDim.x) {
    const Piece<SgdTensor<T>> piece = piece_of(table, p);
    const SgdTensor<T>& t = piece.tensor;
    step.choose(Ieee::mul(*settings.lr, t.lr_scale), t.decay);
    each_chunk<chunk<C>, 1>(piece, table.wide, [&]<int N>(std::integral_constant<int, N>, std::int64_t i) {
      const Lanes<C, N> gradient = load_lanes<N>(t.gradient + i);
      Lanes<C, N> weight = load_weights<N>(t, i);
      if (t.buffer) {
        Lanes<C, N> mean = load_lanes<N>(t.buffer + i);
#pragma unroll
        for (int l = 0; l < N; ++l) weight[l] = step.update(weight[l], gradient[l], mean[l]);
        store_lanes(t.buffer + i, mean);
      } else {
#pragma unroll
        for (int l = 0; l < N; ++l) weight[l] = step.update(weight[l], gradient[l]);
      }
      store_weights(t, i, weight);
    });
  }
}

}  // namespace

template <class T>
void sum_squares(std::span<const Values<T>> tensors, double* sum, void* workspace, Stream stream) {
  double* parts = static_cast<double*>(workspace);
  each_table(
      tensors, [](const Values<T>& t) { return aligned({t.data}); },
      [&](const Table<Values<T>>& table, unsigned blocks) {
        sum_squares_kernel<<<blocks, update_threads, 0, stream>>>(table, parts);
        check_launch("sum_squares");
        add_numbers("sum_squares", stream, parts, blocks, sum);
      });
}

std::int64_t sum_squares_workspace() { return std::int64_t{8} * update_blocks * most_multiprocessors; }

void clip_factor(const ClipFactor& numbers, double limit, Stream stream) {
  clip_factor_kernel<<<1, 1, 0, stream>>>(numbers, limit);
  check_launch("clip_factor");
}

template <class T>
void count_non_finite(std::span<const CountedValues<T>> tensors, const double* keep, Stream stream) {
  each_table(
      tensors, [](const CountedValues<T>& t) { return aligned({t.data}); },
      [&](const Table<CountedValues<T>>& table, unsigned blocks) {
        count_non_finite_kernel<<<blocks, update_threads, 0, stream>>>(table, keep);
        check_launch("count_non_finite");
      });
}

template <class T>
void adamw(std::span<const AdamTensor<T>> tensors, const AdamSettings& settings, Stream stream) {
  each_table(
      tensors,
      [](const AdamTensor<T>& t) {
        return aligned({t.parameter, t.master, t.gradient, t.m, t.v});
      },
      [&](const Table<AdamTensor<T>>& table, unsigned blocks) {
        adamw_kernel<<<blocks, update_threads, 0, stream>>>(table, settings);
        check_launch("adamw");
      });
}

template <class T>
void sgd(std::span<const SgdTensor<T>> tensors, const SgdSettings& settings, Stream stream) {
  for (const SgdTensor<T>& t : tensors)
    PRUN_CHECK(settings.momentum == 0 || t.buffer, "sgd keeps momentum in a buffer");
  each_table(
      tensors,
      [](const SgdTensor<T>& t) {
        return aligned({t.parameter, t.master, t.gradient, t.buffer});
      },
      [&](const Table<SgdTensor<T>>& table, unsigned blocks) {
        sgd_kernel<<<blocks, update_threads, 0, stream>>>(table, settings);
        check_launch("sgd");
      });
}

#define PRUN_OPTIMIZER(T)                                                                      \
  template void sum_squares<T>(std::span<const Values<T>>, double*, void*, Stream);            \
  template void count_non_finite<T>(std::span<const CountedValues<T>>, const double*, Stream); \
  template void adamw<T>(std::span<const AdamTensor<T>>, const AdamSettings&, Stream);         \
  template void sgd<T>(std::span<const SgdTensor<T>>, const SgdSettings&, Stream)
PRUN_OPTIMIZER(double);
PRUN_OPTIMIZER(float);
PRUN_OPTIMIZER(bf16);

}  // namespace prun::cuda
