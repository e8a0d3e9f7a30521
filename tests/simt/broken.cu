#include "tests/simt/broken.hpp"

#include "cuda/async.cuh"
#include "cuda/device.cuh"

namespace prun::simt_test {
namespace {

__global__ void turn_kernel(Turn how, double* numbers) {
  extern __shared__ double held[];
  const int me = static_cast<int>(threadIdx.x), other = 63 - me;
  double* const mine = numbers + 64 * blockIdx.x;
  for (int time = 0; time < 3; ++time) {
    if (how != Turn::of_unwritten || me < 40) held[how == Turn::beyond ? me + 1 : me] = mine[me];
    if (how != Turn::without_barrier) __syncthreads();
    mine[me] = held[how == Turn::beyond ? other + 1 : other];
    if (how != Turn::too_early_again) __syncthreads();
  }
}

__global__ void change_kernel(bool after_barrier, double* to) {
  __shared__ double number;
  if (threadIdx.x == 0) number = 1;
  __syncthreads();
  to[threadIdx.x] = number;
  if (after_barrier) __syncthreads();
  if (threadIdx.x == 0) number = 2;
}

__global__ void wait_kernel(Barrier how) {
  if (how == Barrier::by_half) {
    if (threadIdx.x % 2 == 0) __syncthreads();
  } else if (how == Barrier::at_two_places) {
    if (threadIdx.x % 2 == 0)
      __syncthreads();
    else
      __syncthreads();
  } else {
    if (threadIdx.x >= 50) return;
    __syncthreads();
  }
}

__global__ void exchange_kernel() {
  if (threadIdx.x < 16) __shfl_xor_sync(0xffffffffu, threadIdx.x, 1);
}

__global__ void add_kernel(bool atomically, double* sum) {
  if (atomically)
    atomicAdd(sum, 1.0);
  else
    *sum += 1.0;
}

__global__ void pass_kernel(double* numbers) { numbers[blockIdx.x + 1] = numbers[blockIdx.x]; }

__global__ void copy_kernel(bool waits, const double* from, double* to) {
  __shared__ __align__(16) double held[2 * 32];
  const int at = 2 * static_cast<int>(threadIdx.x);
  cuda::copy_async(held + at, from + at);
  cuda::commit_copies();
  if (waits) cuda::wait_copies<0>();
  to[at] = held[at];
  to[at + 1] = held[at + 1];
}

}  // namespace

void turn_around(Turn how, double* numbers, int blocks, Stream stream) {
  turn_kernel<<<blocks, 64, 64 * sizeof(double), stream>>>(how, numbers);
  cuda::check_launch("turn_around");
}

void change_what_is_read(bool after_barrier, double* to, Stream stream) {
  change_kernel<<<1, 64, 0, stream>>>(after_barrier, to);
  cuda::check_launch("change_what_is_read");
}

void wait(Barrier how, Stream stream) {
  wait_kernel<<<1, 64, 0, stream>>>(how);
  cuda::check_launch("wait");
}

void exchange_by_half(Stream stream) {
  exchange_kernel<<<1, 32, 0, stream>>>();
  cuda::check_launch("exchange_by_half");
}

void add_ones(bool atomically, double* sum, Stream stream) {
  add_kernel<<<3, 40, 0, stream>>>(atomically, sum);
  cuda::check_launch("add_ones");
}

void pass_on(double* numbers, Stream stream) {
  pass_kernel<<<4, 1, 0, stream>>>(numbers);
  cuda::check_launch("pass_on");
}

void copy(bool waits, const double* from, double* to, Stream stream) {
  copy_kernel<<<1, 32, 0, stream>>>(waits, from, to);
  cuda::check_launch("copy");
}

}  // namespace prun::simt_test
