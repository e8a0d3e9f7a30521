#include "elementwise/cuda.hpp"

#include "cuda/map.cuh"

namespace prun::cuda {
namespace {

template <class C>
struct Scale {
  C factor;
  __device__ C operator()(C x) const { return factor * x; }
};

struct Same {
  template <class C>
  __device__ C operator()(C x) const {
    return x;
  }
};

__global__ void reciprocal_kernel(const double* x, double* y) { *y = 1.0 / *x; }
__global__ void multiply_kernel(const double* a, const double* b, double* y) { *y = *a * *b; }
__global__ void choose_kernel(const double* which, const double* a, const double* b, double* y) {
  *y = *which != 0 ? *a : *b;
}

}  // namespace

template <class T>
void add(const T* a, const T* b, T* y, std::int64_t n, Stream stream) {
  map("add", stream, n, Add(), y, a, b);
}

template <class T>
void scale(const T* x, T* y, double factor, std::int64_t n, Stream stream) {
  map("scale", stream, n, Scale<Compute<T>>{static_cast<Compute<T>>(factor)}, y, x);
}

template <class From, class To>
void cast(const From* x, To* y, std::int64_t n, Stream stream) {
  map("cast", stream, n, Same(), y, x);
}

template <class T, class S>
void accumulate(const T* x, S* sum, std::int64_t n, Stream stream) {
  map("accumulate", stream, n, Add(), sum, sum, x);
}

void reciprocal(const double* x, double* y, Stream stream) {
  reciprocal_kernel<<<1, 1, 0, stream>>>(x, y);
  check_launch("reciprocal");
}

void multiply(const double* a, const double* b, double* y, Stream stream) {
  multiply_kernel<<<1, 1, 0, stream>>>(a, b, y);
  check_launch("multiply");
}

void choose(const double* which, const double* a, const double* b, double* y, Stream stream) {
  choose_kernel<<<1, 1, 0, stream>>>(which, a, b, y);
  check_launch("choose");
}

#define PRUN_CASTS(From)                                                        \
  template void cast<From, double>(const From*, double*, std::int64_t, Stream); \
  template void cast<From, float>(const From*, float*, std::int64_t, Stream);   \
  template void cast<From, bf16>(const From*, bf16*, std::int64_t, Stream);     \
  template void cast<From, f16>(const From*, f16*, std::int64_t, Stream)
#define PRUN_ELEMENTWISE(T)                                                             \
  template void add<T>(const T*, const T*, T*, std::int64_t, Stream);                   \
  template void scale<T>(const T*, T*, double, std::int64_t, Stream);                   \
  template void accumulate<T, Compute<T>>(const T*, Compute<T>*, std::int64_t, Stream); \
  PRUN_CASTS(T)
PRUN_ELEMENTWISE(double);
PRUN_ELEMENTWISE(float);
PRUN_ELEMENTWISE(bf16);
PRUN_ELEMENTWISE(f16);
template void accumulate<bf16, bf16>(const bf16*, bf16*, std::int64_t, Stream);
template void accumulate<f16, f16>(const f16*, f16*, std::int64_t, Stream);

}  // namespace prun::cuda
