#include "whole_update/cuda.hpp"

#include <algorithm>

#include "cuda/device.cuh"
#include "cuda/map.cuh"
#include "update_rule.hpp"

namespace prun::cuda {
namespace {

inline constexpr int threads = 256;

template <class C>
struct Mix {
  C a, b;
  __device__ C operator()(C x, C z) const { return a * x + b * z; }
};

// Limits the blocks of a matrix; its sum of squares has as many parts at most.
inline constexpr std::int64_t most_parts = 128, elements_of_part = 16 * threads;

dim3 grid_of_run(const MatrixRun& run) {
  const std::int64_t parts = (run.n + elements_of_part - 1) / elements_of_part;
  return dim3(static_cast<unsigned>(std::min(parts, most_parts)), grid_of(run.count));
}

// Calls do(i) for this thread's elements of matrix `blockIdx.y`.
template <class Body>
__device__ void each_of_matrix(std::int64_t n, Body body) {
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * threads)
    body(i);
}

// `parts` is [matrix, block].
template <class C>
__global__ __launch_bounds__(threads) void squares_kernel(MatrixRun run, const C* x, double* parts) {
  __shared__ double scratch[32];
  const C* const from = x + blockIdx.y * run.stride;
  double sum = 0;
  each_of_matrix(run.n, [&](std::int64_t i) {
    const auto value = static_cast<double>(from[i]);
    sum += value * value;
  });
  sum = block_fold(sum, 0.0, Add(), scratch);
  if (threadIdx.x == 0) parts[static_cast<std::int64_t>(blockIdx.y) * gridDim.x + blockIdx.x] = sum;
}

// The grid must be the one in which the parts of its squares were made.
template <class C, class T>
__global__ __launch_bounds__(threads) void divide_kernel(MatrixRun run, const C* x, const double* parts,
                                                         double least, T* y) {
  __shared__ double scratch[32];
  const double part =
      threadIdx.x < gridDim.x ? parts[static_cast<std::int64_t>(blockIdx.y) * gridDim.x + threadIdx.x] : 0;
  const double norm = sqrt(block_fold(part, 0.0, Add(), scratch));
  const C inverse = static_cast<C>(1.0 / (norm > least ? norm : least));
  const C* const from = x + blockIdx.y * run.stride;
  T* const to = y + blockIdx.y * run.n;
  each_of_matrix(run.n, [&](std::int64_t i) { store_lanes(to + i, Lanes<C, 1>{inverse * from[i]}); });
}

template <class T, class C>
__global__ __launch_bounds__(threads) void scale_kernel(MatrixRun run, C factor, const T* x, C* y) {
  const T* const from = x + blockIdx.y * run.n;
  C* const to = y + blockIdx.y * run.stride;
  each_of_matrix(run.n, [&](std::int64_t i) { to[i] = factor * load_lanes<1>(from + i)[0]; });
}

template <class T>
__global__ __launch_bounds__(threads) void scale_by_kernel(const T* x, const double* factor, T* y,
                                                           std::int64_t n) {
  const T by = static_cast<T>(*factor);
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * threads)
    y[i] = by * x[i];
}

template <class T>
__device__ double square_at(const T* gradient, std::int64_t i, Compute<T> clip) {
  const auto value = static_cast<double>(clip * load_lanes<1>(gradient + i)[0]);
  return value * value;
}

// A warp takes a row.
template <class T, class C>
__global__ __launch_bounds__(threads) void row_squares_kernel(FactoredShape s, const T* gradient,
                                                              const double* clip, C* rows) {
  const auto factor = static_cast<Compute<T>>(*clip);
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (threads / 32) + threadIdx.x / 32;
       row < s.batch * s.rows; row += static_cast<std::int64_t>(gridDim.x) * (threads / 32)) {
    double sum = 0;
    for (std::int64_t j = threadIdx.x % 32; j < s.columns; j += 32)
      sum += square_at(gradient, row * s.columns + j, factor);
    sum = warp_fold(sum, Add());
    if (threadIdx.x % 32 == 0) rows[row] = static_cast<C>(sum);
  }
}

// A thread takes a column.
template <class T, class C>
__global__ __launch_bounds__(threads) void column_squares_kernel(FactoredShape s, const T* gradient,
                                                                 const double* clip, C* columns) {
  const auto factor = static_cast<Compute<T>>(*clip);
  for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
       at < s.batch * s.columns; at += static_cast<std::int64_t>(gridDim.x) * threads) {
    const std::int64_t first = at / s.columns * s.rows * s.columns + at % s.columns;
    double sum = 0;
    for (std::int64_t i = 0; i < s.rows; ++i) sum += square_at(gradient, first + i * s.columns, factor);
    columns[at] = static_cast<C>(sum);
  }
}

// A warp takes a matrix.
template <class C>
__global__ __launch_bounds__(32) void total_kernel(FactoredShape s, const C* rows, C* total) {
  const std::int64_t matrix = blockIdx.x;
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < s.rows; i += 32)
    sum += static_cast<double>(rows[matrix * s.rows + i]);
  sum = warp_fold(sum, Add());
  if (threadIdx.x == 0) total[matrix] = static_cast<C>(sum);
}

template <class C>
__global__ __launch_bounds__(threads) void mean_kernel(C* mean, const C* sum, const double* step,
                                                       const double* keep, double decay, double count,
                                                       std::int64_t n) {
  if (*keep == 0) return;
  const auto share = static_cast<C>(pow(*step, decay)), inverse = static_cast<C>(1 / count);
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * threads)
    mean[i] += share * (sum[i] * inverse - mean[i]);
}

template <class T, class C>
__global__ __launch_bounds__(threads) void direction_kernel(FactoredShape s, const T* gradient,
                                                            const double* clip, const C* rows,
                                                            const C* columns, const C* total, C least,
                                                            C* direction) {
  const auto factor = static_cast<C>(*clip);
  const std::int64_t n = s.batch * s.rows * s.columns;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * threads) {
    const std::int64_t row = i / s.columns, matrix = row / s.rows;
    const C share = total[matrix] > 0 ? rows[row] / total[matrix] : C(0);
    const C square = share * columns[matrix * s.columns + i % s.columns];
    direction[i] = factor * load_lanes<1>(gradient + i)[0] / Ieee::root(square > least ? square : least);
  }
}

__global__ void factor_kernel(AdafactorNumbers numbers, double count, double least, double limit,
                              double lr_scale) {
  const double size = sqrt(*numbers.weights / count), slower = *numbers.lr * lr_scale * sqrt(*numbers.step);
  const double longer = sqrt(*numbers.squares / count) / limit;
  *numbers.factor = (size > least ? size : least) / (slower > 1 ? slower : 1) / (longer > 1 ? longer : 1);
}

unsigned blocks_for(std::int64_t n, std::int64_t by_block) {
  const std::int64_t all = (n + by_block - 1) / by_block;
  return grid_of(std::max<std::int64_t>(1, std::min<std::int64_t>(all, 16 * multiprocessors())));
}

}  // namespace

template <class C, class T>
void divide_by_norms(const MatrixRun& run, const C* x, double least, T* y, double* workspace, Stream stream) {
  squares_kernel<<<grid_of_run(run), threads, 0, stream>>>(run, x, workspace);
  check_launch("orthogonalize");
  divide_kernel<<<grid_of_run(run), threads, 0, stream>>>(run, x, workspace, least, y);
  check_launch("orthogonalize");
}

std::int64_t norms_workspace(std::int64_t count) { return count * most_parts * std::int64_t{sizeof(double)}; }

template <class T, class C>
void mix(double a, const T* x, double b, const C* z, T* y, std::int64_t n, Stream stream) {
  map("orthogonalize", stream, n, Mix<C>{static_cast<C>(a), static_cast<C>(b)}, y, x, z);
}

template <class T, class C>
void scale_out(const MatrixRun& run, double factor, const T* x, C* y, Stream stream) {
  scale_kernel<<<grid_of_run(run), threads, 0, stream>>>(run, static_cast<C>(factor), x, y);
  check_launch("orthogonalize");
}

template <class T>
void scale_by(const T* x, const double* factor, T* y, std::int64_t n, Stream stream) {
  scale_by_kernel<<<blocks_for(n, threads), threads, 0, stream>>>(x, factor, y, n);
  check_launch("scale_by");
}

template <class T, class C>
void factored_squares(const FactoredShape& s, const T* gradient, const double* clip, C* rows, C* columns,
                      C* total, Stream stream) {
  row_squares_kernel<<<blocks_for(s.batch * s.rows, threads / 32), threads, 0, stream>>>(s, gradient, clip,
                                                                                         rows);
  check_launch("factored_squares");
  column_squares_kernel<<<blocks_for(s.batch * s.columns, threads), threads, 0, stream>>>(s, gradient, clip,
                                                                                          columns);
  check_launch("factored_squares");
  total_kernel<<<grid_of(s.batch), 32, 0, stream>>>(s, rows, total);
  check_launch("factored_squares");
}

template <class C>
void mean_update(C* mean, const C* sum, const double* step, const double* keep, double decay, double count,
                 std::int64_t n, Stream stream) {
  mean_kernel<<<blocks_for(n, threads), threads, 0, stream>>>(mean, sum, step, keep, decay, count, n);
  check_launch("mean_update");
}

template <class T, class C>
void factored_direction(const FactoredShape& s, const T* gradient, const double* clip, const C* rows,
                        const C* columns, const C* total, double eps, C* direction, Stream stream) {
  const std::int64_t n = s.batch * s.rows * s.columns;
  direction_kernel<<<blocks_for(n, threads), threads, 0, stream>>>(s, gradient, clip, rows, columns, total,
                                                                   static_cast<C>(eps * eps), direction);
  check_launch("factored_direction");
}

void adafactor_factor(const AdafactorNumbers& numbers, double count, double least, double limit,
                      double lr_scale, Stream stream) {
  factor_kernel<<<1, 1, 0, stream>>>(numbers, count, least, limit, lr_scale);
  check_launch("adafactor_factor");
}

#define PRUN_ITERATION(T, C)                                                                    \
  template void divide_by_norms<C, T>(const MatrixRun&, const C*, double, T*, double*, Stream); \
  template void mix<T, C>(double, const T*, double, const C*, T*, std::int64_t, Stream);        \
  template void scale_out<T, C>(const MatrixRun&, double, const T*, C*, Stream)
PRUN_ITERATION(double, double);
PRUN_ITERATION(float, float);
PRUN_ITERATION(bf16, float);

#define PRUN_FACTORED(T, C)                                                                                 \
  template void factored_squares<T, C>(const FactoredShape&, const T*, const double*, C*, C*, C*, Stream);  \
  template void factored_direction<T, C>(const FactoredShape&, const T*, const double*, const C*, const C*, \
                                         const C*, double, C*, Stream)
PRUN_FACTORED(double, double);
PRUN_FACTORED(float, float);
PRUN_FACTORED(bf16, float);
PRUN_FACTORED(f16, float);

#define PRUN_SUMS(C)                                                                                     \
  template void scale_by<C>(const C*, const double*, C*, std::int64_t, Stream);                          \
  template void mean_update<C>(C*, const C*, const double*, const double*, double, double, std::int64_t, \
                               Stream)
PRUN_SUMS(double);
PRUN_SUMS(float);

}  // namespace prun::cuda
