// A block numbers the positions of a sequence that have a choice in one part of the experts: each thread
// counts those of neighbouring positions, and the counts of threads before it say where its own begin. The
// rest are copies, and sums in the order of parts.
#include "rows/cuda.hpp"

#include "cuda/device.cuh"

namespace prun::cuda {
namespace {

inline constexpr int threads = 512;

// Says where numbers are written: the position of each row (-1: it is empty), the row of each position in
// each part (-1: none), or how many rows there would be. Each may be null.
struct Found {
  std::int32_t *position, *row, *count;
};

struct Choices {
  const std::int32_t* index;
  RowsShape s;

  __device__ std::int64_t of_part() const { return s.experts / s.parts; }
  __device__ bool is_in(std::int32_t expert, std::int64_t part) const {
    return expert >= 0 && expert / of_part() == part;
  }
  __device__ bool has(std::int64_t position, std::int64_t part) const {
    bool any = false;
    for (std::int64_t c = 0; c < s.choices; ++c) any |= is_in(index[position * s.choices + c], part);
    return any;
  }
};

// Returns the sum of the counts of threads before this one, and gives the sum of all.
__device__ int before_own(int own, int& all, int* ends) {
  const int thread = static_cast<int>(threadIdx.x);
  ends[thread] = own;
  __syncthreads();
  for (int distance = 1; distance < threads; distance *= 2) {
    const int more = thread >= distance ? ends[thread - distance] : 0;
    __syncthreads();
    ends[thread] += more;
    __syncthreads();
  }
  all = ends[threads - 1];
  return ends[thread] - own;
}

__global__ __launch_bounds__(threads) void find_kernel(Choices chosen, Found found) {
  __shared__ int ends[threads];
  const RowsShape& s = chosen.s;
  const std::int64_t part = blockIdx.x, sequence = blockIdx.y,
                     first_row = (part * s.sequences + sequence) * s.rows;
  const std::int64_t each = (s.positions + threads - 1) / threads, begin = threadIdx.x * each,
                     end = begin + each < s.positions ? begin + each : s.positions;
  int own = 0, all = 0;
  for (std::int64_t p = begin; p < end; ++p) own += chosen.has(sequence * s.positions + p, part);
  std::int64_t number = before_own(own, all, ends);
  for (std::int64_t p = begin; p < end; ++p) {
    const std::int64_t position = sequence * s.positions + p;
    const bool there = chosen.has(position, part);
    const bool fits = there && number < s.rows;
    if (found.row)
      found.row[position * s.parts + part] = fits ? static_cast<std::int32_t>(first_row + number) : -1;
    if (found.position && fits) found.position[first_row + number] = static_cast<std::int32_t>(position);
    number += there;
  }
  for (std::int64_t row = all + static_cast<std::int64_t>(threadIdx.x); found.position && row < s.rows;
       row += threads)
    found.position[first_row + row] = -1;
  if (found.count && threadIdx.x == 0) found.count[part * s.sequences + sequence] = all;
}

// Sets to[row] = x[its position], or zeros.
template <int N, class T>
__global__ void send_kernel(const T* x, const std::int32_t* position, T* to, std::int64_t rows,
                            std::int64_t hidden) {
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= rows || column >= hidden) return;
  Pack<T, N> values = {};
  if (position[row] >= 0) values = load_pack<N>(x + position[row] * hidden + column);
  store_pack(to + row * hidden + column, values);
}

template <class C>
__global__ void send_choices_kernel(Choices chosen, const C* weight, const std::int32_t* position,
                                    std::int32_t* row_index, C* row_weight) {
  const RowsShape& s = chosen.s;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= s.parts * s.sequences * s.rows * s.choices) return;
  const std::int64_t row = i / s.choices, part = row / (s.sequences * s.rows);
  const std::int32_t from = position[row];
  const std::int64_t choice = from * s.choices + i % s.choices;
  const bool own = from >= 0 && chosen.is_in(chosen.index[choice], part);
  row_index[i] = own ? chosen.index[choice] : -1;
  row_weight[i] = own ? weight[choice] : C(0);
}

// Sets y[position] = the sum of its rows, in the order of parts.
template <int N, class T>
__global__ void return_kernel(const T* rows, const std::int32_t* row, T* y, std::int64_t positions,
                              std::int64_t parts, std::int64_t hidden) {
  using C = Compute<T>;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
  const std::int64_t position = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (position >= positions || column >= hidden) return;
  Lanes<C, N> sum;
#pragma unroll
  for (int e = 0; e < N; ++e) sum[e] = 0;
  for (std::int64_t part = position * parts; part < (position + 1) * parts; ++part) {
    if (row[part] < 0) continue;
    const Lanes<C, N> one = load_lanes<N>(rows + row[part] * hidden + column);
#pragma unroll
    for (int e = 0; e < N; ++e) sum[e] += one[e];
  }
  store_lanes(y + position * hidden + column, sum);
}

template <class C>
__global__ void return_numbers_kernel(Choices chosen, const C* of_rows, const std::int32_t* row, C* numbers) {
  const RowsShape& s = chosen.s;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= s.sequences * s.positions * s.choices) return;
  const std::int32_t expert = chosen.index[i];
  const std::int64_t part = expert < 0 ? s.parts : expert / chosen.of_part();
  const std::int32_t at = part < s.parts ? row[i / s.choices * s.parts + part] : -1;
  numbers[i] = at < 0 ? C(0) : of_rows[at * s.choices + i % s.choices];
}

// One thread looks at all counts: they are few.
__global__ void most_kernel(const std::int32_t* count, std::int64_t counts, double rows, double mean,
                            double* needed) {
  double most = 0;
  for (std::int64_t i = 0; i < counts; ++i) most = count[i] > most ? count[i] : most;
  needed[0] = fmax(needed[0], most / mean);
  needed[1] = fmax(needed[1], rows / mean);
}

void find(const Choices& chosen, const Found& found, Stream stream) {
  const dim3 grid(grid_of(chosen.s.parts), grid_of(chosen.s.sequences));
  find_kernel<<<grid, threads, 0, stream>>>(chosen, found);
  check_launch("find_rows");
}

inline constexpr int wide = 256;
inline constexpr std::int64_t number_bytes = sizeof(std::int32_t);

}  // namespace

std::int64_t send_workspace(const RowsShape& s) { return s.all_rows() * number_bytes; }
std::int64_t return_workspace(const RowsShape& s) { return s.all_positions() * s.parts * number_bytes; }
std::int64_t count_workspace(const RowsShape& s) { return s.parts * s.sequences * number_bytes; }

template <class T>
void send_rows(const T* x, const std::int32_t* index, T* to, const RowsShape& s, std::int64_t hidden,
               void* workspace, Stream stream) {
  auto* const position = static_cast<std::int32_t*>(workspace);
  find({index, s}, {position, nullptr, nullptr}, stream);
  with_chunk<T>(hidden, {x, to}, [&]<int N>(std::integral_constant<int, N>) {
    const RowGrid grid(s.all_rows(), ceil_div(hidden, N));
    send_kernel<N, T><<<grid.grid, grid.block, 0, stream>>>(x, position, to, s.all_rows(), hidden);
  });
  check_launch("send_rows");
}

template <class C>
void send_choices(const std::int32_t* index, const C* weight, std::int32_t* row_index, C* row_weight,
                  const RowsShape& s, void* workspace, Stream stream) {
  auto* const position = static_cast<std::int32_t*>(workspace);
  const Choices chosen{index, s};
  find(chosen, {position, nullptr, nullptr}, stream);
  const unsigned blocks = grid_of(ceil_div(s.all_rows() * s.choices, wide));
  send_choices_kernel<C><<<blocks, wide, 0, stream>>>(chosen, weight, position, row_index, row_weight);
  check_launch("send_choices");
}

template <class T>
void return_rows(const ReturnedRows<T>& of, const std::int32_t* index, const RowsShape& s,
                 std::int64_t hidden, void* workspace, Stream stream) {
  using C = Compute<T>;
  auto* const row = static_cast<std::int32_t*>(workspace);
  const Choices chosen{index, s};
  find(chosen, {nullptr, row, nullptr}, stream);
  with_chunk<T>(hidden, {of.rows, of.y}, [&]<int N>(std::integral_constant<int, N>) {
    const RowGrid grid(s.all_positions(), ceil_div(hidden, N));
    return_kernel<N, T>
        <<<grid.grid, grid.block, 0, stream>>>(of.rows, row, of.y, s.all_positions(), s.parts, hidden);
  });
  check_launch("return_rows");
  if (!of.choice_numbers) return;
  const unsigned blocks = grid_of(ceil_div(s.all_positions() * s.choices, wide));
  return_numbers_kernel<C><<<blocks, wide, 0, stream>>>(chosen, of.numbers, row, of.choice_numbers);
  check_launch("return_rows");
}

void count_rows(const std::int32_t* index, double* needed, double mean, const RowsShape& s, void* workspace,
                Stream stream) {
  auto* const count = static_cast<std::int32_t*>(workspace);
  find({index, s}, {nullptr, nullptr, count}, stream);
  most_kernel<<<1, 1, 0, stream>>>(count, s.parts * s.sequences, static_cast<double>(s.rows), mean, needed);
  check_launch("count_rows");
}

#define PRUN_INSTANCES(T)                                                                                    \
  template void send_rows(const T*, const std::int32_t*, T*, const RowsShape&, std::int64_t, void*, Stream); \
  template void return_rows(const ReturnedRows<T>&, const std::int32_t*, const RowsShape&, std::int64_t,     \
                            void*, Stream);
PRUN_INSTANCES(double)
PRUN_INSTANCES(float)
PRUN_INSTANCES(bf16)
PRUN_INSTANCES(f16)
template void send_choices(const std::int32_t*, const float*, std::int32_t*, float*, const RowsShape&, void*,
                           Stream);
template void send_choices(const std::int32_t*, const double*, std::int32_t*, double*, const RowsShape&,
                           void*, Stream);

}  // namespace prun::cuda
