// A block takes a sample, a thread some positions in a row: the last document that begins in them is the
// first of the threads behind.
#include "documents/cuda.hpp"

#include "cuda/device.cuh"

namespace prun::cuda {
namespace {

inline constexpr int threads = 256;

__global__ __launch_bounds__(threads) void document_starts_kernel(const std::int32_t* tokens,
                                                                  std::int32_t* starts, std::int64_t seq,
                                                                  std::int64_t end,
                                                                  const std::int32_t* places) {
  __shared__ std::int32_t last[threads];
  const std::int64_t each = (seq + threads - 1) / threads, row = blockIdx.x * seq;
  const std::int64_t first = threadIdx.x * each;
  const std::int64_t behind = first + each < seq ? first + each : seq;
  const auto place = [&](std::int64_t i) { return row + (places ? places[i] : i); };
  std::int32_t start = 0;
  for (std::int64_t i = first; i < behind; ++i)
    if (tokens[place(i)] == end) start = static_cast<std::int32_t>(i + 1);
  last[threadIdx.x] = start;
  __syncthreads();
  start = 0;
  for (int t = 0; t < static_cast<int>(threadIdx.x); ++t)
    if (last[t] > start) start = last[t];
  for (std::int64_t i = first; i < behind; ++i) {
    starts[place(i)] = start;
    if (tokens[place(i)] == end) start = static_cast<std::int32_t>(i + 1);
  }
}

// Does the same, where the threads behind begin with the number of separators so far.
__global__ __launch_bounds__(threads) void token_types_kernel(const std::int32_t* tokens, std::int32_t* kinds,
                                                              std::int64_t seq, std::int64_t separator,
                                                              std::int32_t most, const std::int32_t* places) {
  __shared__ std::int32_t passed[threads];
  const std::int64_t each = (seq + threads - 1) / threads, row = blockIdx.x * seq;
  const std::int64_t first = threadIdx.x * each;
  const std::int64_t behind = first + each < seq ? first + each : seq;
  const auto place = [&](std::int64_t i) { return row + (places ? places[i] : i); };
  std::int32_t count = 0;
  for (std::int64_t i = first; i < behind; ++i) count += tokens[place(i)] == separator;
  passed[threadIdx.x] = count;
  __syncthreads();
  count = 0;
  for (int t = 0; t < static_cast<int>(threadIdx.x); ++t) count += passed[t];
  for (std::int64_t i = first; i < behind; ++i) {
    kinds[place(i)] = count < most ? count : most;
    count += tokens[place(i)] == separator;
  }
}

// A thread takes a position.
__global__ __launch_bounds__(threads) void ahead_kernel(const std::int32_t* x, std::int32_t* y, Ahead shape,
                                                        const std::int32_t* starts,
                                                        const std::int32_t* places) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (at >= shape.batch * shape.seq) return;
  const std::int64_t row = at / shape.seq * shape.seq, i = at % shape.seq, from = i + shape.by;
  const auto place = [&](std::int64_t position) { return row + (places ? places[position] : position); };
  const bool there = from < shape.seq && (!starts || starts[place(from)] <= i);
  y[place(i)] = there ? x[place(from)] : shape.otherwise;
}

__global__ __launch_bounds__(threads) void places_kernel(const std::int32_t* positions, std::int32_t* places,
                                                         std::int64_t seq) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i < seq) places[positions[i]] = static_cast<std::int32_t>(i);
}

}  // namespace

void document_starts(const std::int32_t* tokens, std::int32_t* starts, std::int64_t batch, std::int64_t seq,
                     std::int64_t end, const std::int32_t* positions, std::int32_t* places, Stream stream) {
  if (batch == 0 || seq == 0) return;
  if (positions)
    places_kernel<<<grid_of(ceil_div(seq, threads)), threads, 0, stream>>>(positions, places, seq);
  document_starts_kernel<<<grid_of(batch), threads, 0, stream>>>(tokens, starts, seq, end,
                                                                 positions ? places : nullptr);
  check_launch("document_starts");
}

void token_types(const std::int32_t* tokens, std::int32_t* kinds, const TokenTypes& shape,
                 const std::int32_t* positions, std::int32_t* places, Stream stream) {
  if (shape.batch == 0 || shape.seq == 0) return;
  if (positions)
    places_kernel<<<grid_of(ceil_div(shape.seq, threads)), threads, 0, stream>>>(positions, places,
                                                                                 shape.seq);
  token_types_kernel<<<grid_of(shape.batch), threads, 0, stream>>>(tokens, kinds, shape.seq, shape.separator,
                                                                   static_cast<std::int32_t>(shape.types - 1),
                                                                   positions ? places : nullptr);
  check_launch("token_types");
}

void ahead(const std::int32_t* x, std::int32_t* y, const Ahead& shape, const std::int32_t* starts,
           const std::int32_t* positions, std::int32_t* places, Stream stream) {
  if (shape.batch == 0 || shape.seq == 0) return;
  if (positions)
    places_kernel<<<grid_of(ceil_div(shape.seq, threads)), threads, 0, stream>>>(positions, places,
                                                                                 shape.seq);
  ahead_kernel<<<grid_of(ceil_div(shape.batch * shape.seq, threads)), threads, 0, stream>>>(
      x, y, shape, starts, positions ? places : nullptr);
  check_launch("ahead");
}

}  // namespace prun::cuda
