#include "cuda/optimizer.hpp"

#include "cuda/number_sum.cuh"
#include "cuda/philox.cuh"
#include "update_rule.hpp"

namespace prun::cuda {
namespace {

// ---------------------------------------------------------------- many tensors in one launch
// The tensors travel as a kernel parameter, cut into pieces of equal length that persistent blocks take in
// turn.
inline constexpr int update_threads = 256, update_blocks = 4;
inline constexpr std::int64_t piece_elements = 8192;

// As many as a kernel's parameters have room for.
template <class Tensor>
inline constexpr int most_tensors = std::min<int>(384, 32000 / (sizeof(Tensor) + sizeof(std::int32_t)));

template <class Tensor>
struct Table {
  Tensor tensor[most_tensors<Tensor>];
  std::int32_t first_piece[most_tensors<Tensor> + 1];  // of each tensor; at the end the number of pieces
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

// Calls launch(table, blocks) for tables of so many tensors; `is_wide` says it of one tensor.
template <class Tensor, class IsWide, class Launch>
void each_table(std::span<const Tensor> tensors, IsWide is_wide, Launch launch) {
  const int most_blocks = update_blocks * multiprocessors();
  constexpr std::size_t most = most_tensors<Tensor>;
  for (std::size_t first = 0; first < tensors.size(); first += most) {
    const auto some = tensors.subspan(first, std::min(most, tensors.size() - first));
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
// Value l of a pack of 16-bit values, and a pack of what half(l) gives.
template <class T, int N>
__device__ __forceinline__ std::uint16_t half_of(const Pack<T, N>& p, int l) {
  if constexpr (N == 1)
    return p.word[0];
  else
    return static_cast<std::uint16_t>(l % 2 ? p.word[l / 2] >> 16 : p.word[l / 2]);
}
template <class T, int N, class Half>
__device__ __forceinline__ Pack<T, N> pack_halves(Half half) {
  Pack<T, N> p;
  if constexpr (N == 1) {
    p.word[0] = half(0);
  } else {
#pragma unroll
    for (int l = 0; l < N; l += 2) p.word[l / 2] = half(l) | static_cast<std::uint32_t>(half(l + 1)) << 16;
  }
  return p;
}

// The words by which a piece's elements are rounded. Worked out once for a piece: memory that kernels write
// to could have changed what it is made of.
struct Chances {
  PhiloxKey key;
  std::uint64_t stream;
  const TensorElements& numbers;
  std::int64_t begin;
  std::uint64_t first;  // number of the first element
  bool straight;        // the others go up one by one, and the first is a multiple of 4

  template <class Tensor>
  __device__ __forceinline__ Chances(const Piece<Tensor>& piece, const double* seed, const double* step)
      : key{low(static_cast<std::uint64_t>(*seed)), high(static_cast<std::uint64_t>(*seed))},
        stream(stream_of(piece.tensor.numbers.name, *step)),
        numbers(piece.tensor.numbers),
        begin(piece.begin),
        first(number(piece.begin)),
        straight(first % 4 == 0 &&
                 number(piece.end - 1) - first == static_cast<std::uint64_t>(piece.end - 1 - piece.begin)) {}

  // Of N elements from i on; where N is 4, i is a multiple of 4.
  template <int N>
  __device__ __forceinline__ Lanes<std::uint32_t, N> words(std::int64_t i) const {
    Lanes<std::uint32_t, N> words;
    if (N == 4 && straight) {
      const PhiloxBlock four = block((first + static_cast<std::uint64_t>(i - begin)) / 4);
#pragma unroll
      for (int l = 0; l < N; ++l) words[l] = four.word[l];
    } else {
#pragma unroll
      for (int l = 0; l < N; ++l) {
        const std::uint64_t at = number(i + l);
        const PhiloxBlock four = block(at / 4);
        const bool odd = at % 2 != 0;
        words[l] = at % 4 < 2 ? (odd ? four.word[1] : four.word[0]) : (odd ? four.word[3] : four.word[2]);
      }
    }
    return words;
  }

 private:
  static __device__ __forceinline__ std::uint32_t low(std::uint64_t x) {
    return static_cast<std::uint32_t>(x);
  }
  static __device__ __forceinline__ std::uint32_t high(std::uint64_t x) {
    return static_cast<std::uint32_t>(x >> 32);
  }
  __device__ __forceinline__ std::uint64_t number(std::int64_t i) const {
    return static_cast<std::uint64_t>(numbers.number(i));
  }
  __device__ __forceinline__ PhiloxBlock block(std::uint64_t quarter) const {
    return philox({{low(quarter), high(quarter), low(stream), high(stream)}}, key);
  }
};
struct NoChances {
  template <class... Any>
  __device__ __forceinline__ explicit NoChances(const Any&...) {}
};
template <class Types>
using ChancesOf = std::conditional_t<Types::chancy_states || Types::chancy_weights, Chances, NoChances>;

// What lies in memory of N elements of a tensor from i on, read and written as its types say.
template <class Types, int N, class Tensor>
struct Elements {
  using C = typename Types::C;
  const Tensor& t;
  std::int64_t i;
  Lanes<std::uint32_t, N> words;

  __device__ __forceinline__ Elements(const Tensor& tensor, std::int64_t at, const ChancesOf<Types>& chances)
      : t(tensor), i(at) {
    if constexpr (Types::chancy_states || Types::chancy_weights) words = chances.template words<N>(i);
  }

  __device__ __forceinline__ Lanes<C, N> weights() const {
    if constexpr (Types::split) {
      const auto rounded = load_pack<N>(t.parameter + i);
      const auto low = load_pack<N>(t.master + i);
      Lanes<C, N> all;
#pragma unroll
      for (int l = 0; l < N; ++l) all[l] = joined_halves(half_of(rounded, l), half_of(low, l));
      return all;
    } else if constexpr (Types::has_master) {
      return load_lanes<N>(t.master + i);
    } else {
      return load_lanes<N>(t.parameter + i);
    }
  }

  __device__ __forceinline__ void store_weights(const Lanes<C, N>& all) const {
    using T = typename Types::Parameter;
    if constexpr (Types::split)
      store_pack(t.master + i, pack_halves<std::uint16_t, N>([&](int l) { return low_half(all[l]); }));
    else if constexpr (Types::has_master)
      store_lanes(t.master + i, canonical(all));
    if constexpr (Types::chancy_weights)
      store_chancy(t.parameter + i, all, [&](int l) { return weight_chance(words[l]); });
    else if constexpr (std::is_same_v<T, bf16>)
      store_pack(t.parameter + i,
                 pack_halves<T, N>([&](int l) { return rounded_half(static_cast<float>(all[l])); }));
    else
      store_lanes(t.parameter + i, all);
  }

  // `second`: which moment it is.
  __device__ __forceinline__ void store_states(typename Types::State* states, const Lanes<C, N>& all,
                                               bool second) const {
    if constexpr (Types::chancy_states)
      store_chancy(states + i, all,
                   [&](int l) { return second ? second_chance(words[l]) : first_chance(words[l]); });
    else
      store_lanes(states + i, all);
  }

 private:
  template <class Chance>
  static __device__ __forceinline__ void store_chancy(bf16* to, const Lanes<C, N>& all, Chance chance) {
    store_pack(to, pack_halves<bf16, N>([&](int l) { return rounded_by(chance(l), all[l]); }));
  }
  static __device__ __forceinline__ Lanes<C, N> canonical(Lanes<C, N> all) {
    if constexpr (std::is_same_v<C, float>) {
#pragma unroll
      for (int l = 0; l < N; ++l) all[l] = __uint_as_float(master_bits(all[l]));
    }
    return all;
  }
};

template <class Types>
__global__ __launch_bounds__(update_threads, update_blocks) void adamw_kernel(
    const __grid_constant__ Table<AdamTensor<Types>> table, AdamSettings settings) {
  using C = typename Types::C;
  __shared__ AdamBias shared;
  if (*settings.keep == 0) return;
  if (threadIdx.x == 0) shared = AdamBias(settings.beta1, settings.beta2, *settings.step);
  __syncthreads();
  const AdamBias bias = shared;
  AdamStep<C> step(settings.beta1, settings.beta2, settings.eps, *settings.clip, bias);
  for (int p = blockIdx.x; p < table.first_piece[table.count]; p += gridDim.x) {
    const Piece<AdamTensor<Types>> piece = piece_of(table, p);
    const AdamTensor<Types>& t = piece.tensor;
    step.choose(Ieee::mul(*settings.lr, t.lr_scale), t.decay, bias);
    const ChancesOf<Types> chances(piece, settings.seed, settings.step);
    each_chunk<chunk<C>, 1>(piece, table.wide, [&]<int N>(std::integral_constant<int, N>, std::int64_t i) {
      const Elements<Types, N, AdamTensor<Types>> here(t, i, chances);
      const Lanes<C, N> gradient = load_lanes<N>(t.gradient + i);
      Lanes<C, N> m = load_lanes<N>(t.m + i), v = load_lanes<N>(t.v + i), weight = here.weights();
#pragma unroll
      for (int l = 0; l < N; ++l) weight[l] = step.update(weight[l], gradient[l], m[l], v[l]);
      here.store_states(t.m, m, false);
      here.store_states(t.v, v, true);
      here.store_weights(weight);
    });
  }
}

template <class Types>
__global__ __launch_bounds__(update_threads, update_blocks) void sgd_kernel(
    const __grid_constant__ Table<SgdTensor<Types>> table, SgdSettings settings) {
  using C = typename Types::C;
  if (*settings.keep == 0) return;
  SgdStep<C> step(settings.momentum, *settings.clip);
  for (int p = blockIdx.x; p < table.first_piece[table.count]; p += gridDim.x) {
    const Piece<SgdTensor<Types>> piece = piece_of(table, p);
    const SgdTensor<Types>& t = piece.tensor;
    step.choose(Ieee::mul(*settings.lr, t.lr_scale), t.decay);
    const ChancesOf<Types> chances(piece, settings.seed, settings.step);
    each_chunk<chunk<C>, 1>(piece, table.wide, [&]<int N>(std::integral_constant<int, N>, std::int64_t i) {
      const Elements<Types, N, SgdTensor<Types>> here(t, i, chances);
      const Lanes<C, N> gradient = load_lanes<N>(t.gradient + i);
      Lanes<C, N> weight = here.weights();
      if (t.buffer) {
        Lanes<C, N> mean = load_lanes<N>(t.buffer + i);
#pragma unroll
        for (int l = 0; l < N; ++l) weight[l] = step.update(weight[l], gradient[l], mean[l]);
        here.store_states(t.buffer, mean, false);
      } else {
#pragma unroll
        for (int l = 0; l < N; ++l) weight[l] = step.update(weight[l], gradient[l]);
      }
      here.store_weights(weight);
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

template <class Types>
void adamw(std::span<const AdamTensor<Types>> tensors, const AdamSettings& settings, Stream stream) {
  each_table(
      tensors,
      [](const AdamTensor<Types>& t) {
        return aligned({t.parameter, t.master, t.gradient, t.m, t.v});
      },
      [&](const Table<AdamTensor<Types>>& table, unsigned blocks) {
        adamw_kernel<Types><<<blocks, update_threads, 0, stream>>>(table, settings);
        check_launch("adamw");
      });
}

template <class Types>
void sgd(std::span<const SgdTensor<Types>> tensors, const SgdSettings& settings, Stream stream) {
  for (const SgdTensor<Types>& t : tensors)
    PRUN_CHECK(settings.momentum == 0 || t.buffer, "sgd keeps momentum in a buffer");
  each_table(
      tensors,
      [](const SgdTensor<Types>& t) {
        return aligned({t.parameter, t.master, t.gradient, t.buffer});
      },
      [&](const Table<SgdTensor<Types>>& table, unsigned blocks) {
        sgd_kernel<Types><<<blocks, update_threads, 0, stream>>>(table, settings);
        check_launch("sgd");
      });
}

#define PRUN_GRADIENTS(T)                                                           \
  template void sum_squares<T>(std::span<const Values<T>>, double*, void*, Stream); \
  template void count_non_finite<T>(std::span<const CountedValues<T>>, const double*, Stream)
PRUN_GRADIENTS(double);
PRUN_GRADIENTS(float);
PRUN_GRADIENTS(bf16);

#define PRUN_UPDATE(...)                                                                               \
  template void adamw<UpdateTypes<__VA_ARGS__>>(std::span<const AdamTensor<UpdateTypes<__VA_ARGS__>>>, \
                                                const AdamSettings&, Stream);                          \
  template void sgd<UpdateTypes<__VA_ARGS__>>(std::span<const SgdTensor<UpdateTypes<__VA_ARGS__>>>,    \
                                              const SgdSettings&, Stream)
#define PRUN_UPDATES(T, Gradient, State)  \
  PRUN_UPDATE(T, void, Gradient, State);  \
  PRUN_UPDATE(T, float, Gradient, State); \
  PRUN_UPDATE(T, std::uint16_t, Gradient, State)
PRUN_UPDATE(double, void, double, double);
PRUN_UPDATE(float, double, double, double);
PRUN_UPDATE(bf16, double, double, double);
PRUN_UPDATE(float, void, float, float);
PRUN_UPDATE(float, void, float, bf16);
PRUN_UPDATES(bf16, float, float);
PRUN_UPDATES(bf16, float, bf16);
PRUN_UPDATES(bf16, bf16, float);
PRUN_UPDATES(bf16, bf16, bf16);

}  // namespace prun::cuda
