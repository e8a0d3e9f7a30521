#include "latent/cuda.hpp"

#include "cuda/turns.cuh"

namespace prun::cuda {
namespace {

inline constexpr int threads = 256;

// Holds a block's numbers of its position: the turns of all pairs.
template <class C>
struct Turned {
  C cosine[most_pairs], sine[most_pairs];

  __device__ void set(const LatentShape& shape, const Frequencies& frequency) {
    const double position = position_of_block(shape);
    const C scale = static_cast<C>(shape.turn.key_scale);
    for (int i = threadIdx.x; i < shape.turned / 2; i += blockDim.x) {
      double s, c;
      sincos(position * frequency.of[i], &s, &c);
      sine[i] = static_cast<C>(s) * scale;
      cosine[i] = static_cast<C>(c) * scale;
    }
    __syncthreads();
  }
  // Returns one of a pair's channels, turned.
  __device__ C turn(int pair, bool second, C a, C b) const {
    return second ? b * cosine[pair] + a * sine[pair] : a * cosine[pair] - b * sine[pair];
  }
};

// Says where a pair's channels are in the operand.
struct Pairs {
  int pairs;
  bool interleaved;
  __device__ int first(int pair) const { return interleaved ? 2 * pair : pair; }
  __device__ int second(int pair) const { return interleaved ? 2 * pair + 1 : pair + pairs; }
  // Maps the other way round, from channel `at`.
  __device__ int pair_of(int at) const { return interleaved ? at / 2 : at % pairs; }
  __device__ bool is_second(int at) const { return interleaved ? at % 2 != 0 : at >= pairs; }
};

// States how many channels a head has of each kind.
struct Channels {
  int width, turns, straight, values, latent;
  Pairs pairs;

  __device__ static Channels of(const LatentShape& shape) {
    const int width = static_cast<int>(shape.head_dim), turns = static_cast<int>(shape.turned),
              values = static_cast<int>(shape.values);
    return {width, turns, width - turns, values, width - turns + values, {turns / 2, shape.interleaved}};
  }
};

// A block makes the heads of one position in one sample after the other, a thread a channel of a head.
template <class T>
__global__ __launch_bounds__(threads) void heads_kernel(LatentHeads<T> to, LatentShape shape,
                                                        const __grid_constant__ Frequencies frequency) {
  using C = Compute<T>;
  __shared__ Turned<C> turned;
  turned.set(shape, frequency);
  const auto [width, turns, straight, values, latent, pairs] = Channels::of(shape);
  const C scale = static_cast<C>(shape.turn.query_scale);
  for (std::int64_t sample = blockIdx.y; sample < shape.batch; sample += gridDim.y) {
    const std::int64_t row = sample * shape.seq + blockIdx.x;
    const T* const shared = to.shared + row * turns;
    for (int u = threadIdx.x; u < shape.heads * width; u += blockDim.x) {
      const int channel = u % width;
      const std::int64_t head = row * shape.heads + u / width, at = head * width + channel;
      const T* const kv = to.kv + head * latent;
      store(to.v + at, channel < values ? load(kv + straight + channel) : C(0));
      if (channel < straight) {
        store(to.q + at, load(to.x + at) * scale);
        store(to.k + at, load(kv + channel));
        continue;
      }
      const int pair = (channel - straight) % pairs.pairs;
      const bool second = channel - straight >= pairs.pairs;
      const T* const x = to.x + head * width + straight;
      store(to.q + at,
            turned.turn(pair, second, load(x + pairs.first(pair)), load(x + pairs.second(pair))) * scale);
      store(to.k + at,
            turned.turn(pair, second, load(shared + pairs.first(pair)), load(shared + pairs.second(pair))));
    }
  }
}

template <class T>
__global__ __launch_bounds__(threads) void heads_grad_kernel(LatentHeads<T> of, LatentShape shape,
                                                             const __grid_constant__ Frequencies frequency) {
  using C = Compute<T>;
  __shared__ Turned<C> turned;
  turned.set(shape, frequency);
  const auto [width, turns, straight, values, latent, pairs] = Channels::of(shape);
  const C scale = static_cast<C>(shape.turn.query_scale);
  for (std::int64_t sample = blockIdx.y; sample < shape.batch; sample += gridDim.y) {
    const std::int64_t row = sample * shape.seq + blockIdx.x;
    for (int u = threadIdx.x; u < shape.heads * width; u += blockDim.x) {
      const int channel = u % width;
      const std::int64_t head = row * shape.heads + u / width, at = head * width + channel;
      if (channel < straight) {
        store(of.x + at, load(of.q + at) * scale);
        continue;
      }
      const int pair = pairs.pair_of(channel - straight);
      const T* const q = of.q + head * width + straight;
      const C a = load(q + pair), b = load(q + pair + pairs.pairs);
      store(of.x + at, turned.turn(pair, pairs.is_second(channel - straight), a, b) * scale);
    }
    for (int u = threadIdx.x; u < shape.heads * latent; u += blockDim.x) {
      const int channel = u % latent;
      const std::int64_t head = row * shape.heads + u / latent;
      const T* const from =
          channel < straight ? of.k + head * width + channel : of.v + head * width + channel - straight;
      of.kv[head * latent + channel] = *from;
    }
    for (int channel = threadIdx.x; channel < turns; channel += blockDim.x) {
      const int pair = pairs.pair_of(channel);
      C a = 0, b = 0;
      for (std::int64_t head = row * shape.heads; head < (row + 1) * shape.heads; ++head) {
        const T* const k = of.k + head * width + straight;
        a += load(k + pair);
        b += load(k + pair + pairs.pairs);
      }
      store(of.shared + row * turns + channel, turned.turn(pair, pairs.is_second(channel), a, b));
    }
  }
}

// `direction` is 1, or -1 to turn back.
template <class T, class Kernel>
void launch(const char* name, Kernel kernel, const LatentHeads<T>& heads, const LatentShape& shape,
            double direction, Stream stream) {
  if (shape.batch == 0 || shape.seq == 0) return;
  const std::int64_t pairs = shape.turned / 2;
  if (pairs > most_pairs)
    throw_error(ErrorCode::unsupported, name, " on the GPU turns up to ", 2 * most_pairs, " channels, not ",
                shape.turned, "; use the CPU device or turn fewer");
  const Frequencies frequency = frequencies_of(shape.turn, pairs, direction);
  const dim3 grid(grid_of(shape.seq), grid_of(std::min<std::int64_t>(shape.batch, 65535)));
  kernel<<<grid, threads, 0, stream>>>(heads, shape, frequency);
  check_launch(name);
}

// Uses a thread for each column of the wider side.
template <class T, class Body>
__global__ void rows_kernel(std::int64_t rows, std::int64_t width, Body body) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
  if (row < rows && column < width) body(row, column);
}

template <class T, class Body>
void over_rows(const char* name, std::int64_t rows, std::int64_t width, const Body& body, Stream stream) {
  if (rows == 0) return;
  const RowGrid grid(rows, width);
  rows_kernel<T><<<grid.grid, grid.block, 0, stream>>>(rows, width, body);
  check_launch(name);
}

template <class T>
struct Split {
  const T* whole;
  T *first, *last;
  std::int64_t first_width, last_width;
  __device__ void operator()(std::int64_t row, std::int64_t column) const {
    T* const to = column < first_width ? first + row * first_width + column
                                       : last + row * last_width + column - first_width;
    *to = whole[row * (first_width + last_width) + column];
  }
};

template <class T>
struct Join {
  const T *first, *last;
  T* whole;
  std::int64_t first_width, last_width;
  __device__ void operator()(std::int64_t row, std::int64_t column) const {
    whole[row * (first_width + last_width) + column] = column < first_width
                                                           ? first[row * first_width + column]
                                                           : last[row * last_width + column - first_width];
  }
};

template <class T>
struct Width {
  const T* x;
  T* y;
  std::int64_t from, to;
  __device__ void operator()(std::int64_t row, std::int64_t column) const {
    if (column >= to) return;
    if (column < from)
      y[row * to + column] = x[row * from + column];
    else
      store(y + row * to + column, Compute<T>(0));
  }
};

}  // namespace

template <class T>
void latent_heads(const LatentHeads<T>& heads, const LatentShape& shape, Stream stream) {
  launch("latent_heads", heads_kernel<T>, heads, shape, 1, stream);
}

template <class T>
void latent_heads_grad(const LatentHeads<T>& heads, const LatentShape& shape, Stream stream) {
  launch("latent_heads_grad", heads_grad_kernel<T>, heads, shape, -1, stream);
}

template <class T>
void split_latent(const T* whole, T* first, T* last, std::int64_t rows, std::int64_t first_width,
                  std::int64_t last_width, Stream stream) {
  over_rows<T>("split_latent", rows, first_width + last_width,
               Split<T>{whole, first, last, first_width, last_width}, stream);
}

template <class T>
void join_latent(const T* first, const T* last, T* whole, std::int64_t rows, std::int64_t first_width,
                 std::int64_t last_width, Stream stream) {
  over_rows<T>("join_latent", rows, first_width + last_width,
               Join<T>{first, last, whole, first_width, last_width}, stream);
}

template <class T>
void set_width(const T* x, T* y, std::int64_t rows, std::int64_t from, std::int64_t to, Stream stream) {
  over_rows<T>("set_width", rows, to, Width<T>{x, y, from, to}, stream);
}

#define PRUN_LATENT(T)                                                                                    \
  template void latent_heads<T>(const LatentHeads<T>&, const LatentShape&, Stream);                       \
  template void latent_heads_grad<T>(const LatentHeads<T>&, const LatentShape&, Stream);                  \
  template void split_latent<T>(const T*, T*, T*, std::int64_t, std::int64_t, std::int64_t, Stream);      \
  template void join_latent<T>(const T*, const T*, T*, std::int64_t, std::int64_t, std::int64_t, Stream); \
  template void set_width<T>(const T*, T*, std::int64_t, std::int64_t, std::int64_t, Stream);
PRUN_LATENT(double)
PRUN_LATENT(float)
PRUN_LATENT(bf16)
PRUN_LATENT(f16)
#undef PRUN_LATENT

}  // namespace prun::cuda
