// The gated delta rule on tensor cores.
#include "delta_rule/cuda_tensor.cuh"

namespace prun::cuda {
namespace tensor_delta_parts {
namespace {

// ---------------------------------------------------------------- what each chunk is for itself

// Fills in what a chunk is weighed by; behind its last position nothing decays or is learnt. `raw` holds a
// chunk's numbers.
__device__ void set_marks(const Inputs& in, const Head& head, const Chunk& chunk, float* raw, Marks& m) {
  const int i = static_cast<int>(threadIdx.x), last = chunk.count - 1;
  const bool there = i < chunk.count;
  const auto start_of = [&](int place) {
    return in.of.documents ? in.of.documents[chunk.row + place] - chunk.first : -chunk.first;
  };
  if (i < places) {
    const Index at = chunk.gate + i * head.values;
    raw[i] = there ? in.g[at] : 0.0f;
    m.share[i] = there ? in.beta[at] : 0.0f;
  }
  __syncthreads();
  if (i >= places) return;
  const Totals sum(raw, i);
  const Index start = start_of(there ? i : last), last_start = start_of(last);
  m.sums[i] = sum.some;
  // A document that began in the chunk sees nothing of the state, and one that ended in it leaves nothing.
  m.seen[i] = start < 0 || chunk.first == 0 ? exp_of<bf16>(sum.some) : 0.0f;
  m.left[i] = i >= last_start ? exp_of<bf16>(sum.all - sum.some) : 0.0f;
  m.from[i] = start > 0 ? static_cast<int>(start) : 0;
}

constexpr int system_stride = places + 4;

// Returns an element of the inverse, of which rows lie above the diagonal as columns.
__device__ __forceinline__ float inverse_at(const float* system, int row, int column) {
  return row > column ? system[column * system_stride + row] : row == column ? 1.0f : 0.0f;
}

// Fills in the inverse's block below two inverted blocks X and Z of `n` places, -Z A X with what lies there
// of the system. Of n * n / 2 threads each has n / 4 rows of a column, of two or one of such blocks.
template <int n>
__device__ void join_blocks(float* system) {
  constexpr int rows = n / 4, pairs = places / (2 * n);
  static_assert(pairs * 4 * n == few);
  const int begin = pairs == 1 ? 0 : thread_over(4 * n) * 2 * n, column = begin + thread_modulo(n);
  const int first = begin + n + thread_modulo(4 * n) / n * rows;
  float sums[rows];
#pragma unroll
  for (int r = 0; r < rows; ++r) sums[r] = 0;
#pragma unroll
  for (int k = begin; k < begin + n; k += 4) {
    const Lanes<float, 4> own = load_lanes<4>(system + column * system_stride + k);
    float x[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) x[e] = k + e > column ? own[e] : k + e == column ? 1.0f : 0.0f;
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      const Lanes<float, 4> by = load_lanes<4>(system + (first + r) * system_stride + k);
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[r] += by[e] * x[e];
    }
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < rows; ++r) system[(first + r) * system_stride + column] = sums[r];
  __syncthreads();
  for (int k = begin + n; k < first + rows - 1; ++k) {
    const float product = system[k * system_stride + column];
#pragma unroll
    for (int r = 0; r < rows; r += 4) {
      const Lanes<float, 4> by = load_lanes<4>(system + k * system_stride + first + r);
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[r + e] += first + r + e > k ? by[e] * product : 0.0f;
    }
  }
#pragma unroll
  for (int r = 0; r < rows; ++r) system[column * system_stride + first + r] = -sums[r];
  __syncthreads();
}

// Inverts 1 + system, which lies below the diagonal: first blocks on the diagonal, a column of which is a
// thread's, then twice what lies below two of them.
__device__ void invert(float* system) {
  if (threadIdx.x < places) {
    const int column = static_cast<int>(threadIdx.x), first = column / 16 * 16;
    const float* const rows = system + first * system_stride + first;
    float x[16];
#pragma unroll
    for (int r = 0; r < 16; ++r) {
      x[r] = first + r == column ? 1.0f : 0.0f;
#pragma unroll
      for (int j = 0; j < r; ++j) x[r] -= rows[r * system_stride + j] * x[j];
    }
#pragma unroll
    for (int r = 0; r < 16; ++r)
      if (first + r > column) system[column * system_stride + first + r] = x[r];
  }
  __syncthreads();
  join_blocks<16>(system);
  join_blocks<32>(system);
}

// Holds rows of the inverse as a left factor, each column times its number.
__device__ void hold(const float* system, const Hold& at, const float* by, const float* by_too, Held<4>& to) {
#pragma unroll
  for (int k = 0; k < 4; ++k)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = at.row(e % 2), column = 16 * k + e / 2 * 8 + at.first;
      float x[2];
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        x[c] = inverse_at(system, row, column + c);
        if (by) x[c] *= by[column + c];
        if (by_too) x[c] *= by_too[column + c];
      }
      to.of[k][e] = pair_of(x[0], x[1]);
    }
}

constexpr int prepare_bytes =
    2 * tile_bytes<width>(places) + places * system_stride * 4 + static_cast<int>(sizeof(Marks)) + places * 4;

// Computes marks, T = (1 + A)^-1, W = T (beta e^G K) and U = T (beta V) of a chunk.
__global__ __launch_bounds__(few, 4) void prepare_kernel(Inputs in) {
  extern __shared__ __align__(128) unsigned char memory[];
  const unsigned values = static_cast<unsigned>(in.of.values);
  const Head head(in, blockIdx.y / values, blockIdx.y % values);
  const Chunk chunk(in, head, blockIdx.x);
  Shared shared{memory};
  const Tile<width> of_keys = shared.tile<width>(places), of_values = shared.tile<width>(places);
  float* const system = shared.take<float>(places * system_stride);
  Marks& m = *shared.take<Marks>(1);
  float* const raw = shared.take<float>(places);
  copy_rows<places, few>(of_keys, in.k + chunk.key, chunk.keys_row, chunk.count);
  commit_copies();
  copy_rows<places, few>(of_values, in.v + chunk.gate * width, head.values * width, chunk.count);
  commit_copies();
  set_marks(in, head, chunk, raw, m);
  wait_for_copies<1>();
  const Hold at;
  {
    float sums[8][4];
    clear(sums);
    multiply<8>(Rows<width>{of_keys, at.strip}, Rows<width>{of_keys, 0}, sums);
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = at.row(e / 2), column = at.column(i) + e % 2;
        system[row * system_stride + column] =
            column < row ? m.share[row] * sums[i][e] * m.decay(row, column) : 0.0f;
      }
  }
  __syncthreads();
  if (const int i = static_cast<int>(threadIdx.x); i < static_cast<int>(sizeof(Marks) / 16))
    reinterpret_cast<uint4*>(in.room.marks + chunk.number)[i] = reinterpret_cast<const uint4*>(&m)[i];
  invert(system);
  Held<4> rows;
  float sums[16][4];
  clear(sums);
  hold(system, at, m.share, m.seen, rows);
  multiply<4>(rows, Columns<width>{of_keys, 0}, sums);
  wait_for_copies<0>();
  round_rows(sums, at, of_keys, 0);
  clear(sums);
  hold(system, at, m.share, nullptr, rows);
  multiply<4>(rows, Columns<width>{of_values, 0}, sums);
  __syncthreads();
  store_tile<places, few>(of_keys, in.room.inputs + chunk.number * chunk_numbers, width);
  round_rows(sums, at, of_values, 0);
  __syncthreads();
  store_tile<places, few>(of_values, in.room.corrected + chunk.number * chunk_numbers, width);
  if (!in.room.inverse) return;
  hold(system, at, nullptr, nullptr, rows);
  bf16* const to = in.room.inverse + chunk.number * places * places;
#pragma unroll
  for (int k = 0; k < 4; ++k)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      *reinterpret_cast<Pair*>(to + at.row(e % 2) * places + 16 * k + e / 2 * 8 + at.first) = rows.of[k][e];
}

// ---------------------------------------------------------------- states

__global__ __launch_bounds__(many) void scan_kernel(Inputs in, float* states) {
  extern __shared__ __align__(128) unsigned char memory[];
  Scan<false> scan(in, nullptr, memory);
  scan.run();
  if (!states) return;
  const DeltaState layout = in.of.state();
  const unsigned values = static_cast<unsigned>(in.of.values), of_head = blockIdx.y % values;
  float* const kept = states + (in.first_head + blockIdx.y / values) * layout.numbers();
  float* const to = kept + layout.matrix(of_head) + scan.channel;
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      to[scan.state_row(e / 2) * width + scan.at.column(i) + e % 2] = scan.state[i][e];
  if (of_head != 0 || scan.channel != 0) return;
  for (Index i = layout.recent(0) + threadIdx.x; i < layout.first(); i += many) kept[i] = 0;
  if (threadIdx.x == 0) kept[layout.first()] = static_cast<float>(in.of.seq);
}

}  // namespace

void scan_states(const Inputs& in, unsigned heads, float* states, Stream stream) {
  const dim3 chunks(grid_of(in.of.chunks()), heads), slices(width / slice, heads);
  allow(prepare_kernel, prepare_bytes);
  prepare_kernel<<<chunks, few, prepare_bytes, stream>>>(in);
  check_launch("delta_rule, chunks");
  allow(scan_kernel, scan_bytes<false>);
  scan_kernel<<<slices, many, scan_bytes<false>, stream>>>(in, states);
  check_launch("delta_rule, states");
}

}  // namespace tensor_delta_parts

using namespace tensor_delta_parts;

bool tensor_delta_takes(const DeltaRuleSizes& sizes) {
  return sizes.all_runs == 0 && sizes.key == width && sizes.value == width && sizes.chunk == places;
}

std::int64_t tensor_delta_workspace(const DeltaRuleSizes& sizes) {
  Room room;
  return lay_out(sizes, false, nullptr, room);
}

bool tensor_delta(const DeltaRuleForward<bf16>& call, Stream stream) {
  if (!aligned({call.q, call.k, call.v, call.y, call.workspace}) || !may_share(scan_bytes<false>))
    return false;
  Inputs in{call.sizes, call.q, call.k, call.v, call.g, call.beta, {}, 0};
  lay_out(in.of, false, call.workspace, in.room);
  for_heads(in, [&](const Inputs& part, unsigned heads) {
    const unsigned values = heads * static_cast<unsigned>(part.of.values);
    scan_states(part, values, call.state, stream);
    const dim3 chunks(grid_of(part.of.chunks()), values);
    allow(across_kernel<false>, across_bytes<false>);
    across_kernel<false><<<chunks, many, across_bytes<false>, stream>>>(part, nullptr, call.y);
    check_launch("delta_rule, results");
  });
  return true;
}

}  // namespace prun::cuda
