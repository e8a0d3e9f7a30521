// Holds what both directions of the gated delta rule on tensor cores are built from. A chunk's system is
// inverted once, so that only two products of a chunk wait for the chunk before: corrections X = U - W S and
// the next state e^G S + K^T X (Scan, forward and, from the last chunk to the first, of the gradients). What
// is left is computed for all chunks at a time. In front of exponentials what a position does not see is
// masked. Names are those of kernels/delta_rule/cpu.cpp.
#pragma once

#include "cuda/async.cuh"
#include "cuda/math.cuh"
#include "cuda/shared_rows.cuh"
#include "cuda/tensor_core.cuh"
#include "delta_rule/cuda_tensor.hpp"

namespace prun::cuda::tensor_delta_parts {

using Index = std::int64_t;

constexpr int places = 64, width = 128;           // positions of a chunk; channels of a key, and of a value
constexpr int slice = 32;                         // channels of a value that a block scans
constexpr int few = 128, many = 256, most = 512;  // threads of a block
constexpr int stages = 3;                         // chunks of a scan that are in shared memory
constexpr Index usual_heads = 32, usual_chunks = 4096;  // of value heads that are at work at a time
constexpr Index chunk_numbers = places * width, state_numbers = width * width;
constexpr float scale = 0.0883883476f;

// ---------------------------------------------------------------- where things are

// Has what a chunk of a value head is weighed by. Rows of 16 bytes, since it is copied.
struct alignas(16) Marks {
  float sums[places], seen[places], left[places], share[places];
  int from[places];  // the first place of the chunk that each one sees

  __device__ float kept() const { return seen[places - 1]; }
  __device__ float decay(int i, int j) const {
    return j <= i && j >= from[i] ? exp_of<bf16>(sums[i] - sums[j]) : 0.0f;
  }
};

// Has what kernels leave to those behind them, of heads that are at work together.
struct Room {
  bf16 *inputs, *corrected, *states;     // W; U and then corrections; states in front of chunks
  bf16 *inverse, *dcorrected, *dstates;  // for gradients; those of states are behind chunks
  Marks* marks;
};

struct Inputs {
  DeltaRuleSizes of;
  const bf16 *q, *k, *v;
  const float *g, *beta;
  Room room;
  Index first_head;  // of samples and key heads, those at work begin there
};

// Is a value head.
struct Head {
  Index first_row, head, value,
      number;  // in all samples; of its sample, `value` among all; its place in a Room
  Index heads, values;

  __device__ Head(const Inputs& in, unsigned local_head, unsigned of_head)
      : heads(in.of.heads), values(in.of.heads * in.of.values) {
    const Index both = in.first_head + local_head, sample = both / heads;
    first_row = sample * in.of.seq;
    head = both - sample * heads;
    value = head * in.of.values + of_head;
    number = (local_head * in.of.values + of_head) * in.of.chunks();
  }
};

// Is a chunk of one.
struct Chunk {
  Index first, number;             // the position it begins at; its place in a Room
  Index row, key, gate, keys_row;  // where its positions, its keys and its numbers begin
  int count;

  __device__ Chunk(const Inputs& in, const Head& of, Index chunk)
      : first(chunk * places),
        number(of.number + chunk),
        row(of.first_row + first),
        key((row * of.heads + of.head) * width),
        gate(row * of.values + of.value),
        keys_row(of.heads * width),
        count(static_cast<int>(in.of.seq - first < places ? in.of.seq - first : places)) {}
};

// Is a matrix in shared memory. Rows end with 16 bytes of nothing, so that eight rows' are in different
// banks.
template <int columns>
struct Tile {
  static constexpr int stride = columns + 8;
  bf16* data;

  __device__ bf16* at(int row, int column) const { return data + row * stride + column; }
  __device__ Pair& pair(int row, int column) const { return *reinterpret_cast<Pair*>(at(row, column)); }
  // Are for load_matrices(), as those of SharedRows.
  __device__ const bf16* left(int row, int column) const {
    return at(row + thread_modulo(16), column + thread_modulo(32) / 16 * 8);
  }
  __device__ const bf16* right(int row, int column) const {
    return at(row + thread_modulo(32) / 16 * 8 + thread_modulo(8), column + thread_modulo(16) / 8 * 8);
  }
};

// Hands out shared memory.
struct Shared {
  unsigned char* next;

  template <int columns>
  __device__ Tile<columns> tile(int rows) {
    return {take<bf16>(rows * Tile<columns>::stride)};
  }
  template <class T>
  __device__ T* take(int n) {
    T* const piece = reinterpret_cast<T*>(next);
    next += n * static_cast<int>(sizeof(T));
    return piece;
  }
};

template <int columns>
constexpr int tile_bytes(int rows) {
  return rows * Tile<columns>::stride * 2;
}

// Begins to copy rows, by as many threads; those from `count` on become zero.
template <int rows, int threads, int columns>
__device__ __forceinline__ void copy_rows(const Tile<columns>& to, const bf16* from, Index stride,
                                          int count = rows) {
  constexpr int packs = columns / 8, step = threads / packs;
  static_assert(threads % packs == 0 && rows % step == 0);
  const int row = thread_over(packs), column = thread_modulo(packs) * 8;
  bf16* const shared = to.at(row, column);
  const bf16* const own = from + row * stride + column;
#pragma unroll
  for (int i = 0; i < rows; i += step) {
    const bool there = row + i < count;
    copy_or_clear_async(shared + i * Tile<columns>::stride, there ? own + i * stride : from, there);
  }
}

__device__ __forceinline__ void copy_marks(Marks* to, const Marks* from) {
  constexpr int packs = sizeof(Marks) / 16;
  static_assert(packs <= few);
  if (const int i = static_cast<int>(threadIdx.x); i < packs)
    copy_async(reinterpret_cast<unsigned char*>(to) + 16 * i,
               reinterpret_cast<const unsigned char*>(from) + 16 * i);
}

// Waits for all copies but those of the last `pending` groups.
template <int pending>
__device__ __forceinline__ void wait_for_copies() {
  wait_copies<pending>();
  __syncthreads();
}

// Stores rows of a tile, those below `count`, by as many threads.
template <int rows, int threads, int columns>
__device__ __forceinline__ void store_tile(const Tile<columns>& from, bf16* to, Index stride,
                                           int count = rows) {
  constexpr int packs = columns / 8, step = threads / packs;
  const int row = thread_over(packs), column = thread_modulo(packs) * 8;
#pragma unroll
  for (int i = 0; i < rows; i += step)
    if (row + i < count)
      *reinterpret_cast<uint4*>(to + (row + i) * stride + column) =
          *reinterpret_cast<const uint4*>(from.at(row + i, column));
}

// ---------------------------------------------------------------- products

// These load factors of 16 x 16 for step k: rows of the left one from `row` on, columns of the right one.
template <int columns>
struct Rows {
  Tile<columns> of;
  int row;
  __device__ void left(int k, Pair (&to)[4]) const { load_matrices(to, of.left(row, 16 * k)); }
  // Their rows are the product's columns.
  __device__ void right(int k, int n, Pair (&to)[4]) const {
    load_matrices(to, of.right(row + 8 * n, 16 * k));
  }
};
template <int columns>
struct Columns {
  Tile<columns> of;
  int column;
  // Their columns are the product's rows.
  __device__ void left(int k, Pair (&to)[4]) const { load_matrices_turned(to, of.right(16 * k, column)); }
  __device__ void right(int k, int n, Pair (&to)[4]) const {
    load_matrices_turned(to, of.left(16 * k, column + 8 * n));
  }
};

// Computes sums += left x right over 16 x steps channels.
template <int steps, int n, class Left, class Right>
__device__ inline void multiply(const Left& left, const Right& right, float (&sums)[n][4]) {
#pragma unroll
  for (int k = 0; k < steps; ++k) {
    Pair a[4];
    left.left(k, a);
#pragma unroll
    for (int i = 0; i < n; i += 2) {
      Pair b[4];
      right.right(k, i, b);
      multiply_add(sums[i], a, b[0], b[1]);
      multiply_add(sums[i + 1], a, b[2], b[3]);
    }
  }
}

// Is a left factor in registers.
template <int steps>
struct Held {
  Pair of[steps][4];
  __device__ void left(int k, Pair (&to)[4]) const {
#pragma unroll
    for (int e = 0; e < 4; ++e) to[e] = of[k][e];
  }
};

template <int n>
__device__ inline void clear(float (&sums)[n][4]) {
#pragma unroll
  for (int i = 0; i < n; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[i][e] = 0;
}

__device__ __forceinline__ Pair pair_of(float first, float second) {
  return pack<bf16>(Lanes<float, 2>{{first, second}}).word[0];
}
// Returns the sum over the four threads that hold parts of one row.
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
__device__ __forceinline__ Lanes<float, 2> parts_of(Pair pair) { return unpack(Pack<bf16, 2>{{pair}}); }

// Says which elements of a product a thread holds: of tile i those of row(e / 2) and column(i) + e % 2.
struct Hold {
  int strip =
      thread_modulo(128) / 32 * 16;  // of a product of 64 rows; more than four warps share its columns
  int part = thread_over(128);
  int line = thread_modulo(32) / 4, first = thread_modulo(4) * 2;

  __device__ int row(int r) const { return strip + line + 8 * r; }
  __device__ int column(int i) const { return 8 * i + first; }
};

// Rounds what a warp holds of 16 rows by 8 x n columns into a tile, from `column` on.
template <int n, int columns>
__device__ void round_rows(const float (&sums)[n][4], const Hold& at, const Tile<columns>& to, int column) {
#pragma unroll
  for (int i = 0; i < n; ++i)
#pragma unroll
    for (int r = 0; r < 2; ++r)
      to.pair(at.row(r), column + at.column(i)) = pair_of(sums[i][2 * r], sums[i][2 * r + 1]);
}

// Adds up numbers of all places, and of those up to `end`.
struct Totals {
  float some = 0, all = 0;
  __device__ Totals(const float* of, int end) {
#pragma unroll
    for (int j = 0; j < places; j += 4) {
      const Lanes<float, 4> x = load_lanes<4>(of + j);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        all += x[e];
        some += j + e <= end ? x[e] : 0.0f;
      }
    }
  }
};

// ---------------------------------------------------------------- the scan over chunks

// Is what a block needs of a chunk to scan its slice of a state. Forward: X = U - W S, S' = e^G S + K^T (left
// o X). Back, with the state's gradient D: dX = dX + left o (K D), D' = e^G D + Q^T (e^G o dy) - W^T dX.
template <bool back>
struct Stage {
  static constexpr int bytes = (back ? 3 : 2) * tile_bytes<width>(places) +
                               (back ? 2 : 1) * tile_bytes<slice>(places) + static_cast<int>(sizeof(Marks));
  Tile<width> inputs, keys, queries;
  Tile<slice> base, dy;
  Marks* marks;

  __device__ explicit Stage(unsigned char* memory) {
    Shared shared{memory};
    inputs = shared.tile<width>(places);
    keys = shared.tile<width>(places);
    base = shared.tile<slice>(places);
    marks = shared.take<Marks>(1);
    if constexpr (back) {
      queries = shared.tile<width>(places);
      dy = shared.tile<slice>(places);
    }
  }
};

template <bool back>
constexpr int scan_bytes = stages* Stage<back>::bytes + tile_bytes<slice>(width) +
                           2 * tile_bytes<slice>(places);

template <bool back>
struct Scan {
  const Inputs& in;
  const bf16* const dy;
  const Head head;
  const int channel;  // of the value, the slice's first
  unsigned char* const memory;
  const Hold at;
  Tile<slice> copy, moves, asks;  // of the state in bf16; what it moves by
  float state[4][4];

  __device__ Scan(const Inputs& inputs, const bf16* slope, unsigned char* shared)
      : in(inputs),
        dy(slope),
        head(in, blockIdx.y / static_cast<unsigned>(in.of.values),
             blockIdx.y % static_cast<unsigned>(in.of.values)),
        channel(static_cast<int>(blockIdx.x) * slice),
        memory(shared) {
    Shared behind{memory + stages * Stage<back>::bytes};
    copy = behind.tile<slice>(width);
    moves = behind.tile<slice>(places);
    asks = behind.tile<slice>(places);
    clear(state);
  }

  __device__ Chunk chunk(int step) const {
    return {in, head, back ? static_cast<int>(in.of.chunks()) - 1 - step : step};
  }
  __device__ Stage<back> stage(int slot) const { return Stage<back>(memory + slot * Stage<back>::bytes); }
  __device__ bf16* corrections(const Chunk& c) const {
    return (back ? in.room.dcorrected : in.room.corrected) + c.number * chunk_numbers + channel;
  }

  __device__ void fetch(int step, int slot) const {
    if (step < static_cast<int>(in.of.chunks())) {
      const Chunk c = chunk(step);
      const Stage<back> to = stage(slot);
      copy_rows<places, many>(to.inputs, in.room.inputs + c.number * chunk_numbers, width);
      copy_rows<places, many>(to.keys, in.k + c.key, c.keys_row, c.count);
      copy_rows<places, many>(to.base, corrections(c), width);
      copy_marks(to.marks, in.room.marks + c.number);
      if constexpr (back) {
        copy_rows<places, many>(to.queries, in.q + c.key, c.keys_row, c.count);
        copy_rows<places, many>(to.dy, dy + c.gate * width + channel, head.values * width, c.count);
      }
    }
    commit_copies();
  }

  __device__ int state_row(int r) const { return thread_over(32) * 16 + at.line + 8 * r; }

  // Keeps the state in bf16 for products.
  __device__ void round_state() const {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        copy.pair(state_row(r), at.column(i)) = pair_of(state[i][2 * r], state[i][2 * r + 1]);
  }

  // Two chains of products by halves of the channels are half as long.
  __device__ void correct(const Stage<back>& s) const {
    constexpr int middle = width / 2;
    const int column = 16 * at.part;
    Pair base[2][2];
    float left[2], sums[2][4], more[2][4];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      left[r] = s.marks->left[at.row(r)];
#pragma unroll
      for (int i = 0; i < 2; ++i) base[i][r] = s.base.pair(at.row(r), column + at.column(i));
    }
    clear(sums);
    clear(more);
    const Tile<width>& rows = back ? s.keys : s.inputs;
    multiply<4>(Rows<width>{rows, at.strip}, Columns<slice>{copy, column}, sums);
    multiply<4>(Rows<width>{{rows.at(0, middle)}, at.strip}, Columns<slice>{{copy.at(middle, 0)}, column},
                more);
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float by = back ? left[r] : -1.0f, moved = back ? -1.0f : left[r];
        const Lanes<float, 2> x = parts_of(base[i][r]);
        const float first = x[0] + by * (sums[i][2 * r] + more[i][2 * r]),
                    last = x[1] + by * (sums[i][2 * r + 1] + more[i][2 * r + 1]);
        moves.pair(at.row(r), column + at.column(i)) = pair_of(moved * first, moved * last);
        s.base.pair(at.row(r), column + at.column(i)) = pair_of(first, last);
      }
  }

  // Weighs what queries ask for.
  __device__ void weigh(const Stage<back>& s) const {
    constexpr int packs = slice / 8;
    const int row = thread_over(packs), column = thread_modulo(packs) * 8;
    static_assert(many / packs == places);
    const float by = scale * s.marks->seen[row];
    Lanes<float, 8> x = load_lanes<8>(s.dy.at(row, column));
#pragma unroll
    for (int e = 0; e < 8; ++e) x[e] *= by;
    store_lanes(asks.at(row, column), x);
  }

  __device__ void move(const Stage<back>& s) {
    const float kept = s.marks->kept();
    const int row = thread_over(32) * 16;
    float asked[4][4];
    if constexpr (back) {
      clear(asked);
      multiply<4>(Columns<width>{s.queries, row}, Columns<slice>{asks, 0}, asked);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) state[i][e] *= kept;
    multiply<4>(Columns<width>{back ? s.inputs : s.keys, row}, Columns<slice>{moves, 0}, state);
    if constexpr (back)
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) state[i][e] += asked[i][e];
  }

  __device__ void run() {
    round_state();
    for (int step = 0; step < stages - 1; ++step) fetch(step, step);
    const int chunks = static_cast<int>(in.of.chunks());
    for (int step = 0, slot = 0, next = stages - 1; step < chunks; ++step) {
      wait_copies<stages - 2>();
      __syncthreads();
      const Chunk c = chunk(step);
      const Stage<back> s = stage(slot);
      correct(s);
      if constexpr (back) weigh(s);
      store_tile<width, many>(
          copy, (back ? in.room.dstates : in.room.states) + c.number * state_numbers + channel, width);
      __syncthreads();
      store_tile<places, many>(s.base, corrections(c), width);
      fetch(step + stages - 1, next);
      move(s);
      round_state();
      slot = slot + 1 == stages ? 0 : slot + 1;
      next = next + 1 == stages ? 0 : next + 1;
    }
  }
};

// ---------------------------------------------------------------- results

template <bool back>
constexpr int across_bytes = 3 * tile_bytes<width>(places) + tile_bytes<places>(places) +
                             (back ? 0 : tile_bytes<width>(width)) + static_cast<int>(sizeof(Marks));

// Computes a chunk's results: what its queries read of the state in front, and of its corrections. Back, it
// begins the gradients of corrections by what queries read of them.
template <bool back>
__global__ __launch_bounds__(many, 2) void across_kernel(Inputs in, const bf16* dy, bf16* y) {
  extern __shared__ __align__(128) unsigned char memory[];
  const unsigned values = static_cast<unsigned>(in.of.values);
  const Head head(in, blockIdx.y / values, blockIdx.y % values);
  const Chunk chunk(in, head, blockIdx.x);
  Shared shared{memory};
  const Tile<width> queries = shared.tile<width>(places), keys = shared.tile<width>(places),
                    rest = shared.tile<width>(places);
  const Tile<places> weights = shared.tile<places>(places);
  Marks& m = *shared.take<Marks>(1);
  const Index value = chunk.gate * width, stride = head.values * width;
  copy_rows<places, many>(queries, in.q + chunk.key, chunk.keys_row, chunk.count);
  copy_rows<places, many>(keys, in.k + chunk.key, chunk.keys_row, chunk.count);
  copy_marks(&m, in.room.marks + chunk.number);
  commit_copies();
  Tile<width> state{};
  if constexpr (back) {
    copy_rows<places, many>(rest, dy + value, stride, chunk.count);
  } else {
    state = shared.tile<width>(width);
    copy_rows<places, many>(rest, in.room.corrected + chunk.number * chunk_numbers, width);
    copy_rows<width, many>(state, in.room.states + chunk.number * state_numbers, width);
  }
  commit_copies();
  wait_for_copies<1>();
  const Hold at;
  {
    float sums[4][4];
    clear(sums);
    multiply<8>(Rows<width>{back ? keys : queries, at.strip},
                Rows<width>{back ? queries : keys, 32 * at.part}, sums);
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = at.row(r), column = 32 * at.part + at.column(i);
        const float first = back ? m.decay(column, row) : m.decay(row, column),
                    last = back ? m.decay(column + 1, row) : m.decay(row, column + 1);
        weights.pair(row, column) =
            pair_of(scale * first * sums[i][2 * r], scale * last * sums[i][2 * r + 1]);
      }
  }
  wait_for_copies<0>();
  const int channel = 64 * at.part;
  float sums[8][4];
  clear(sums);
  if constexpr (!back) {
    multiply<8>(Rows<width>{queries, at.strip}, Columns<width>{state, channel}, sums);
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[i][e] *= scale * m.seen[at.row(e / 2)];
  }
  multiply<4>(Rows<places>{weights, at.strip}, Columns<width>{rest, channel}, sums);
  __syncthreads();
  round_rows(sums, at, queries, channel);
  __syncthreads();
  if constexpr (back)
    store_tile<places, many>(queries, in.room.dcorrected + chunk.number * chunk_numbers, width);
  else
    store_tile<places, many>(queries, y + value, stride, chunk.count);
}

// ---------------------------------------------------------------- launches

// Returns how many key heads are at work at a time, of all samples: enough for a GPU, and no more memory.
inline Index heads_at_work(const DeltaRuleSizes& of) {
  const Index values = std::max(usual_heads, usual_chunks / of.chunks());
  return std::min(of.batch * of.heads, std::max(Index{1}, values / of.values));
}

// Cuts the workspace up, or counts its bytes where there is none.
inline Index lay_out(const DeltaRuleSizes& of, bool back, void* workspace, Room& room) {
  const Index chunks = heads_at_work(of) * of.values * of.chunks();
  auto* const memory = static_cast<unsigned char*>(workspace);
  Index next = 0;
  const auto take = [&](auto& to, Index each) {
    using T = std::remove_reference_t<decltype(*to)>;
    to = memory ? reinterpret_cast<T*>(memory + next) : nullptr;
    next += chunks * each * static_cast<Index>(sizeof(T));
  };
  room = {};
  take(room.inputs, chunk_numbers);
  take(room.corrected, chunk_numbers);
  take(room.states, state_numbers);
  take(room.marks, 1);
  if (back) {
    take(room.inverse, places * places);
    take(room.dcorrected, chunk_numbers);
    take(room.dstates, state_numbers);
  }
  return next;
}

// Says whether a block of the current device may have as much shared memory.
inline bool may_share(int bytes) {
  int device = 0, most_bytes = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&most_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "cudaDeviceGetAttribute");
  return bytes <= most_bytes;
}

template <class Kernel>
void allow(Kernel kernel, int bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "delta_rule");
}

// Calls body(grid over chunks and value heads, heads of them) with inputs for each part of the heads.
template <class Body>
void for_heads(Inputs in, const Body& body) {
  const Index all = in.of.batch * in.of.heads, at_work = heads_at_work(in.of);
  for (in.first_head = 0; in.first_head < all; in.first_head += at_work)
    body(in, static_cast<unsigned>(std::min(at_work, all - in.first_head)));
}

// Computes what each chunk is for itself, and the states in front of all of them; `states`, if there, gets
// those behind the last one.
void scan_states(const Inputs& in, unsigned heads, float* states, Stream stream);

}  // namespace prun::cuda::tensor_delta_parts
