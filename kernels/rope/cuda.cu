#include "rope/cuda.hpp"

#include <numeric>

#include "cuda/apart.cuh"
#include "cuda/turns.cuh"

namespace prun::cuda {
namespace {

inline constexpr int most_rope_threads = 256;

// Says where the two channels of a pair lie. Channels that do not turn make pairs as well, whose angle is 0:
// they follow those that turn, and their halves each other.
struct PairPlaces {
  int turned, all;
  bool interleaved;

  __device__ int first(int pair) const {
    return pair >= turned ? turned + pair : interleaved ? 2 * pair : pair;
  }
  __device__ int second(int pair) const {
    return pair >= turned ? all + pair : interleaved ? 2 * pair + 1 : turned + pair;
  }
};

// A block turns one position in one sample after the other. N neighbouring pairs are a unit of work, whose
// first channels follow each other, and their second ones.
template <int N, class T, class From, class To>
__global__ __launch_bounds__(most_rope_threads) void rope_kernel(
    From from, To to, RopeShape shape, const __grid_constant__ Frequencies frequency) {
  using C = Compute<T>;
  __shared__ __align__(16) C cosine[most_pairs];
  __shared__ __align__(16) C sine[most_pairs];
  const int pairs = static_cast<int>(shape.head_dim / 2), units = pairs / N;
  const int slots = static_cast<int>(shape.heads * shape.packed), packed = static_cast<int>(shape.packed);
  const PairPlaces places{static_cast<int>(shape.pairs.pairs), pairs, shape.pairs.interleaved};
  const double position = position_of_block(shape);
  const C query_scale = static_cast<C>(rope_query_scale(shape.turn, position)),
          key_scale = static_cast<C>(shape.turn.key_scale),
          turned_scale = static_cast<C>(shape.turn.turned_scale);
  for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
    double s, c;
    sincos(position * frequency.of[i], &s, &c);
    const C times = i < places.turned ? turned_scale : C(1);
    sine[i] = static_cast<C>(s) * times;
    cosine[i] = static_cast<C>(c) * times;
  }
  __syncthreads();
  for (std::int64_t sample = blockIdx.y; sample < shape.batch; sample += gridDim.y) {
    const std::int64_t position_row = (sample * shape.seq + blockIdx.x) * shape.heads;
    for (int u = threadIdx.x; u < slots * units; u += blockDim.x) {
      const int slot = u / units, pair = u % units * N;
      const std::int64_t row = position_row + slot / packed;
      const T* x = from.at(row, slot % packed, packed, 2 * pairs);
      T* y = to.at(row, slot % packed, packed, 2 * pairs);
      const int first_at = places.first(pair), second_at = places.second(pair);
      const Pack<T, N> low = load_pack<N>(x + first_at), high = load_pack<N>(x + second_at);
      if (slot % packed == packed - 1) {  // the value
        store_pack(y + first_at, low);
        store_pack(y + second_at, high);
        continue;
      }
      const Lanes<C, N> first = unpack(low), second = unpack(high);
      Lanes<C, N> turned_first, turned_second;
      const C scale = slot % packed == packed - 2 ? key_scale : query_scale;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        turned_first[i] = (first[i] * cosine[pair + i] - second[i] * sine[pair + i]) * scale;
        turned_second[i] = (second[i] * cosine[pair + i] + first[i] * sine[pair + i]) * scale;
      }
      store_lanes(y + first_at, turned_first);
      store_lanes(y + second_at, turned_second);
    }
  }
}

// Returns the number of threads that are least often idle over `units` units.
int rope_threads(std::int64_t units) {
  int best = most_rope_threads;
  const auto turns = [&](int threads) { return ceil_div(units, threads) * threads; };
  for (int threads = best - 32; threads >= 96; threads -= 32)
    if (turns(threads) < turns(best)) best = threads;
  return best;
}

// `direction` is 1, or -1 to turn back.
template <class T, class From, class To>
void turn(const char* name, const RopeShape& shape, double direction, From from, To to,
          std::initializer_list<const void*> pointers, Stream stream) {
  if (shape.batch == 0 || shape.seq == 0) return;
  const std::int64_t pairs = shape.head_dim / 2;
  if (pairs > most_pairs)
    throw_error(ErrorCode::unsupported, "rope on the GPU turns heads of up to ", 2 * most_pairs,
                " channels, not ", shape.head_dim, "; use the CPU device or smaller heads");
  const Frequencies frequency = frequencies_of(shape.turn, shape.pairs.pairs, direction);
  // There must be enough blocks for every multiprocessor to have many, and otherwise few for a position: each
  // computes its turns.
  const std::int64_t samples = std::max<std::int64_t>(1, shape.batch * shape.seq / (64 * multiprocessors()));
  const dim3 grid(grid_of(shape.seq), grid_of(std::min<std::int64_t>(ceil_div(shape.batch, samples), 65535)));
  // Neighbours are read one by one, and so are pairs that are cut within what a thread reads.
  const std::int64_t together = shape.pairs.interleaved ? 1 : std::gcd(shape.pairs.pairs, pairs);
  with_chunk<T>(together, pointers, [&]<int N>(std::integral_constant<int, N>) {
    const int threads = rope_threads(shape.heads * shape.packed * pairs / N);
    rope_kernel<N, T><<<grid, threads, 0, stream>>>(from, to, shape, frequency);
  });
  check_launch(name);
}

}  // namespace

template <class T>
void rope(const T* x, T* q, T* k, T* v, const RopeShape& shape, Stream stream) {
  turn<T>("rope", shape, 1, Together<const T>{x}, Apart<T>{q, k, v}, {x, q, k, v}, stream);
}

template <class T>
void rope_grad(const T* dq, const T* dk, const T* dv, T* dx, const RopeShape& shape, Stream stream) {
  turn<T>("rope_grad", shape, -1, Apart<const T>{dq, dk, dv}, Together<T>{dx}, {dq, dk, dv, dx}, stream);
}

template <class T>
void rope_apart(const T* first, const T* last, T* q, T* k, T* v, const RopeShape& shape, Stream stream) {
  turn<T>("rope_apart", shape, 1, InTwo<const T>{first, last}, Apart<T>{q, k, v}, {first, last, q, k, v},
          stream);
}

template <class T>
void rope_apart_grad(const T* dq, const T* dk, const T* dv, T* first, T* last, const RopeShape& shape,
                     Stream stream) {
  turn<T>("rope_apart_grad", shape, -1, Apart<const T>{dq, dk, dv}, InTwo<T>{first, last},
          {dq, dk, dv, first, last}, stream);
}

#define PRUN_ROPE(T)                                                                      \
  template void rope<T>(const T*, T*, T*, T*, const RopeShape&, Stream);                  \
  template void rope_grad<T>(const T*, const T*, const T*, T*, const RopeShape&, Stream); \
  template void rope_apart<T>(const T*, const T*, T*, T*, T*, const RopeShape&, Stream);  \
  template void rope_apart_grad<T>(const T*, const T*, const T*, T*, T*, const RopeShape&, Stream)
PRUN_ROPE(double);
PRUN_ROPE(float);
PRUN_ROPE(bf16);
PRUN_ROPE(f16);

}  // namespace prun::cuda
