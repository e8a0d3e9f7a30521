#include "optimizer/cuda.hpp"

#include <limits>

#include "cuda/device.cuh"
#include "cuda/philox.cuh"
#include "square_sum.hpp"
#include "update_rule.hpp"

namespace prun::cuda {
namespace {

// ---------------------------------------------------------------- many tensors in one launch
// The tensors travel as a kernel parameter, cut into pieces of equal length that persistent blocks take in
// turn.
inline constexpr int update_threads = 256, update_blocks = 4;
inline constexpr std::int64_t piece_elements = 8192;
inline constexpr int warps_of_block = update_threads / 32;

// A launch takes as many tensors as a kernel's parameters have room for.
template <class Tensor>
inline constexpr int most_tensors = std::min<int>(384, 32000 / (sizeof(Tensor) + sizeof(std::int32_t)));

template <class Tensor>
struct Table {
  Tensor tensor[most_tensors<Tensor>];
  std::int32_t first_piece[most_tensors<Tensor> + 1];  // by tensor; at the end stands the number of pieces
  std::int32_t count;
  std::int32_t wide;  // says that all tensors may be accessed in 16-byte chunks
};

template <class Tensor>
struct Piece {
  const Tensor& tensor;
  std::int64_t begin, end;
};

template <class Tensor>
__device__ int tensor_with(const Table<Tensor>& table, int piece) {
  int low = 0, high = table.count;  // the tensor lies in [low, high)
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (table.first_piece[middle] <= piece ? low : high) = middle;
  }
  return low;
}

template <class Tensor>
__device__ Piece<Tensor> piece_of(const Table<Tensor>& table, int piece) {
  const int t = tensor_with(table, piece);
  const Tensor& tensor = table.tensor[t];
  const std::int64_t begin = (piece - table.first_piece[t]) * piece_elements;
  return {tensor, begin, min(begin + piece_elements, tensor.elements)};
}

// Calls each(N, index of the first) for this thread's chunks of a piece: 16 bytes of the widest type where
// the table allows, and single elements for the rest.
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

// Takes tensors from the first on, as many as a table has room for and as have no more than the given pieces
// together, or one tensor.
template <class Tensor, class IsWide, class PiecesOf>
Table<Tensor> table_of(std::span<const Tensor> tensors, IsWide is_wide, PiecesOf pieces_of,
                       std::int64_t most) {
  Table<Tensor> table = {};
  table.wide = 1;
  std::int64_t pieces = 0;
  for (const Tensor& tensor : tensors.first(std::min<std::size_t>(tensors.size(), most_tensors<Tensor>))) {
    const std::int64_t more = pieces_of(tensor.elements);
    if (table.count > 0 && pieces + more > most) break;
    PRUN_CHECK(pieces + more <= most, "a tensor of ", tensor.elements, " elements");
    table.tensor[table.count] = tensor;
    table.first_piece[table.count++] = static_cast<std::int32_t>(pieces);
    pieces += more;
    table.wide &= is_wide(tensor);
  }
  table.first_piece[table.count] = static_cast<std::int32_t>(pieces);
  return table;
}

// Calls launch(table, pieces) until all tensors have been taken; `is_wide` says whether one tensor is wide.
template <class Tensor, class IsWide, class PiecesOf, class Launch>
void each_table(std::span<const Tensor> tensors, IsWide is_wide, PiecesOf pieces_of, std::int64_t most,
                Launch launch) {
  while (!tensors.empty()) {
    const Table<Tensor> table = table_of(tensors, is_wide, pieces_of, most);
    if (const std::int32_t pieces = table.first_piece[table.count]; pieces > 0) launch(table, pieces);
    tensors = tensors.subspan(static_cast<std::size_t>(table.count));
  }
}

unsigned blocks_for(std::int64_t pieces) {
  return grid_of(std::min<std::int64_t>(pieces, update_blocks * multiprocessors()));
}

// Cuts tensors into pieces, one for a block at a time: calls launch(table, blocks).
template <class Tensor, class IsWide, class Launch>
void each_table(std::span<const Tensor> tensors, IsWide is_wide, Launch launch) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  each_table(
      tensors, is_wide, [](std::int64_t elements) { return ceil_div(elements, piece_elements); }, most,
      [&](const Table<Tensor>& table, std::int32_t pieces) { launch(table, blocks_for(pieces)); });
}

// ---------------------------------------------------------------- norm
// Adds in the order of kernels/square_sum.hpp. A warp takes a part, which is a piece of its tensor, and each
// of its lanes eight columns that lie together.
struct Columns {
  double sum[square_sum::together] = {};

  template <class C>
  __device__ void add(int column, C value) {
    sum[column] = Ieee::add(sum[column], Ieee::mul(static_cast<double>(value), static_cast<double>(value)));
  }
  template <int N, class T>
  __device__ void add_all(const T* values) {
#pragma unroll
    for (int c = 0; c < square_sum::together; c += N) {
      const Lanes<Compute<T>, N> some = load_lanes<N>(values + c);
#pragma unroll
      for (int l = 0; l < N; ++l) add(c + l, some[l]);
    }
  }
  // Elements behind the end are zero.
  template <class T>
  __device__ void add_some(const T* values, std::int64_t left) {
#pragma unroll
    for (int c = 0; c < square_sum::together; ++c)
      if (c < left) add(c, load_lanes<1>(values + c)[0]);
  }
  // Returns the sum of all lanes of the warp.
  __device__ double folded() const {
    double half[square_sum::together];
#pragma unroll
    for (int c = 0; c < square_sum::together; ++c) half[c] = sum[c];
#pragma unroll
    for (int some = square_sum::together / 2; some > 0; some /= 2)
#pragma unroll
      for (int c = 0; c < some; ++c) half[c] = Ieee::add(half[c], half[c + some]);
    return warp_fold(half[0], Add());
  }
};

template <class T>
__device__ void add_row(Columns& columns, const T* values, std::int64_t left, bool wide) {
  const std::int64_t first = threadIdx.x % 32 * square_sum::together;
  if (left >= square_sum::row_elements && wide) {
#pragma unroll 4
    for (std::int64_t i = first; i < square_sum::row_elements; i += square_sum::columns)
      columns.template add_all<chunk<T>>(values + i);
  } else {
    const std::int64_t end = min(left, square_sum::row_elements);
    for (std::int64_t i = first; i < end; i += square_sum::columns) columns.add_some(values + i, left - i);
  }
}

template <class T>
__global__ __launch_bounds__(update_threads, update_blocks) void square_parts_kernel(
    const __grid_constant__ Table<Values<T>> table, double* parts) {
  const int warps = gridDim.x * warps_of_block;
  for (int p = blockIdx.x * warps_of_block + threadIdx.x / 32; p < table.first_piece[table.count];
       p += warps) {
    const int t = tensor_with(table, p);
    const Values<T>& tensor = table.tensor[t];
    const std::int64_t each = square_sum::part_elements(tensor.elements);
    const std::int64_t begin = (p - table.first_piece[t]) * each, end = min(begin + each, tensor.elements);
    Columns columns;
    for (std::int64_t i = begin; i < end; i += square_sum::row_elements)
      add_row(columns, tensor.data + i, end - i, table.wide);
    const double part = columns.folded();
    if (threadIdx.x % 32 == 0) parts[p] = part;
  }
}

// A warp adds the parts of each tensor; then one thread adds the tensors in their order.
template <class T>
__global__ __launch_bounds__(1024) void square_sum_kernel(const __grid_constant__ Table<Values<T>> table,
                                                          const double* parts, double* sum) {
  __shared__ double of_tensor[most_tensors<Values<T>>];
  for (int t = threadIdx.x / 32; t < table.count; t += blockDim.x / 32) {
    double lane = 0;
#pragma unroll 4
    for (int p = table.first_piece[t] + threadIdx.x % 32; p < table.first_piece[t + 1]; p += 32)
      lane = Ieee::add(lane, parts[p]);
    lane = warp_fold(lane, Add());
    if (threadIdx.x % 32 == 0) of_tensor[t] = lane;
  }
  __syncthreads();
  if (threadIdx.x > 0) return;
  double all = *sum;
  for (int t = 0; t < table.count; ++t) all = Ieee::add(all, of_tensor[t]);
  *sum = all;
}

__global__ void clip_factor_kernel(ClipFactor numbers, double limit) {
  const double scale = numbers.scale ? *numbers.scale : 1.0, norm = sqrt(*numbers.sum) / scale;
  *numbers.norm = norm;
  *numbers.clip = (limit > 0 && norm > limit ? limit / norm : 1.0) / scale;
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
// These give value l of a pack of 16-bit values, and a pack of the values that half(l) gives.
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

// Holds the words by which a piece's elements are rounded. They are computed once for a piece: the compiler
// must assume that a kernel's writes change their inputs.
struct Chances {
  PhiloxKey key;
  std::uint64_t stream;
  const TensorElements& numbers;
  std::int64_t begin;
  std::uint64_t first;  // the number of the first element
  bool straight;        // says that the others go up one by one, and the first is a multiple of 4

  template <class Tensor>
  __device__ __forceinline__ Chances(const Piece<Tensor>& piece, const double* seed, const double* step)
      : key{low(static_cast<std::uint64_t>(*seed)), high(static_cast<std::uint64_t>(*seed))},
        stream(stream_of(piece.tensor.numbers.name, *step)),
        numbers(piece.tensor.numbers),
        begin(piece.begin),
        first(number(piece.begin)),
        straight(first % 4 == 0 &&
                 number(piece.end - 1) - first == static_cast<std::uint64_t>(piece.end - 1 - piece.begin)) {}

  // Returns words for N elements from i on; where N is 4, i is a multiple of 4.
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

// Holds N weights of a tensor from i on, with all the precision that they are kept in.
template <class Types, int N, class Tensor>
__device__ __forceinline__ Lanes<typename Types::C, N> load_weights(const Tensor& t, std::int64_t i) {
  if constexpr (Types::split) {
    const auto rounded = load_pack<N>(t.parameter + i);
    const auto low = load_pack<N>(t.master + i);
    Lanes<typename Types::C, N> all;
#pragma unroll
    for (int l = 0; l < N; ++l) all[l] = joined_halves(half_of(rounded, l), half_of(low, l));
    return all;
  } else if constexpr (Types::has_master) {
    return load_lanes<N>(t.master + i);
  } else {
    return load_lanes<N>(t.parameter + i);
  }
}

// Holds N elements of a tensor from i on, read and written as its types say.
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

  __device__ __forceinline__ Lanes<C, N> weights() const { return load_weights<Types, N>(t, i); }

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

  // `second` says which moment it is.
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
  SgdStep<C> step(settings.momentum, settings.clip ? *settings.clip : 1.0);
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

template <class Types>
__global__ __launch_bounds__(update_threads, update_blocks) void momentum_kernel(
    const __grid_constant__ Table<MomentumTensor<Types>> table, MomentumSettings settings) {
  using C = typename Types::C;
  const bool keep = *settings.keep != 0;
  const MomentumStep<C> step(settings.now, settings.later, settings.sign, *settings.clip);
  for (int p = blockIdx.x; p < table.first_piece[table.count]; p += gridDim.x) {
    const Piece<MomentumTensor<Types>> piece = piece_of(table, p);
    const MomentumTensor<Types>& t = piece.tensor;
    const ChancesOf<Types> chances(piece, settings.seed, settings.step);
    each_chunk<chunk<C>, 1>(piece, table.wide, [&]<int N>(std::integral_constant<int, N>, std::int64_t i) {
      Lanes<C, N> direction = {};
      if (keep) {
        const Elements<Types, N, MomentumTensor<Types>> here(t, i, chances);
        const Lanes<C, N> gradient = load_lanes<N>(t.gradient + i);
        Lanes<C, N> mean = load_lanes<N>(t.state + i);
#pragma unroll
        for (int l = 0; l < N; ++l) direction[l] = step.direction(gradient[l], mean[l]);
        here.store_states(t.state, mean, false);
      }
      store_lanes(t.direction + i, direction);
    });
  }
}

template <class Types>
__global__ __launch_bounds__(update_threads, update_blocks) void average_kernel(
    const __grid_constant__ Table<AveragedTensor<Types>> table, double decay, const double* count,
    const double* keep) {
  using C = typename Types::C;
  __shared__ AverageStep<C> shared;
  if (*keep == 0) return;
  if (threadIdx.x == 0) shared = AverageStep<C>(decay, *count);
  __syncthreads();
  const AverageStep<C> step = shared;
  for (int p = blockIdx.x; p < table.first_piece[table.count]; p += gridDim.x) {
    const Piece<AveragedTensor<Types>> piece = piece_of(table, p);
    const AveragedTensor<Types>& t = piece.tensor;
    each_chunk<chunk<C>, 1>(piece, table.wide, [&]<int N>(std::integral_constant<int, N>, std::int64_t i) {
      const Lanes<C, N> weight = load_weights<Types, N>(t, i);
      Lanes<C, N> average = load_lanes<N>(t.average + i);
#pragma unroll
      for (int l = 0; l < N; ++l) average[l] = step.update(average[l], weight[l]);
      store_lanes(t.average + i, average);
    });
  }
}

}  // namespace

// A workspace has room for this many parts.
constexpr std::int64_t most_square_parts = 8 * square_sum::most_parts;

template <class T>
void sum_squares(std::span<const Values<T>> tensors, double* sum, void* workspace, Stream stream) {
  double* parts = static_cast<double*>(workspace);
  each_table(
      tensors, [](const Values<T>& t) { return aligned({t.data}); }, square_sum::parts_of, most_square_parts,
      [&](const Table<Values<T>>& table, std::int32_t pieces) {
        square_parts_kernel<<<blocks_for(ceil_div(pieces, warps_of_block)), update_threads, 0, stream>>>(
            table, parts);
        check_launch("sum_squares");
        square_sum_kernel<<<1, 1024, 0, stream>>>(table, parts, sum);
        check_launch("sum_squares");
      });
}

std::int64_t sum_squares_workspace() { return most_square_parts * std::int64_t{sizeof(double)}; }

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

template <class Types>
void momentum(std::span<const MomentumTensor<Types>> tensors, const MomentumSettings& settings,
              Stream stream) {
  each_table(
      tensors,
      [](const MomentumTensor<Types>& t) {
        return aligned({t.gradient, t.state, t.direction});
      },
      [&](const Table<MomentumTensor<Types>>& table, unsigned blocks) {
        momentum_kernel<Types><<<blocks, update_threads, 0, stream>>>(table, settings);
        check_launch("momentum");
      });
}

template <class Types>
void average_weights(std::span<const AveragedTensor<Types>> tensors, double decay, const double* step,
                     const double* keep, Stream stream) {
  each_table(
      tensors,
      [](const AveragedTensor<Types>& t) {
        return aligned({t.parameter, t.master, t.average});
      },
      [&](const Table<AveragedTensor<Types>>& table, unsigned blocks) {
        average_kernel<Types><<<blocks, update_threads, 0, stream>>>(table, decay, step, keep);
        check_launch("average_weights");
      });
}

#define PRUN_GRADIENTS(T)                                                           \
  template void sum_squares<T>(std::span<const Values<T>>, double*, void*, Stream); \
  template void count_non_finite<T>(std::span<const CountedValues<T>>, const double*, Stream)
PRUN_GRADIENTS(double);
PRUN_GRADIENTS(float);
PRUN_GRADIENTS(bf16);
PRUN_GRADIENTS(f16);

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
PRUN_UPDATE(f16, double, double, double);
PRUN_UPDATE(f16, float, float, float);
PRUN_UPDATE(f16, float, float, bf16);
PRUN_UPDATE(float, void, float, float);
PRUN_UPDATE(float, void, float, bf16);
PRUN_UPDATES(bf16, float, float);
PRUN_UPDATES(bf16, float, bf16);
PRUN_UPDATES(bf16, bf16, float);
PRUN_UPDATES(bf16, bf16, bf16);

#define PRUN_MOMENTUM(...)                          \
  template void momentum<UpdateTypes<__VA_ARGS__>>( \
      std::span<const MomentumTensor<UpdateTypes<__VA_ARGS__>>>, const MomentumSettings&, Stream)
PRUN_MOMENTUM(double, void, double, double);
PRUN_MOMENTUM(float, void, float, float);
PRUN_MOMENTUM(float, void, bf16, float);
PRUN_MOMENTUM(float, void, float, bf16);
PRUN_MOMENTUM(float, void, bf16, bf16);

#define PRUN_AVERAGE(...)                                                                              \
  template void average_weights<UpdateTypes<__VA_ARGS__>>(                                             \
      std::span<const AveragedTensor<UpdateTypes<__VA_ARGS__>>>, double, const double*, const double*, \
      Stream)
PRUN_AVERAGE(double, void, double, double);
PRUN_AVERAGE(float, double, double, double);
PRUN_AVERAGE(bf16, double, double, double);
PRUN_AVERAGE(f16, double, double, double);
PRUN_AVERAGE(f16, float, float, float);
PRUN_AVERAGE(float, void, float, float);
PRUN_AVERAGE(bf16, void, float, float);
PRUN_AVERAGE(bf16, float, float, float);
PRUN_AVERAGE(bf16, std::uint16_t, float, float);

}  // namespace prun::cuda
