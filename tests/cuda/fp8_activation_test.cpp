#include "activation/cuda_fp8.hpp"

#include <limits>

#include "activation/cuda.hpp"
#include "tests/cuda/device_value.hpp"
#include "tests/support/fp8_oracle.hpp"

namespace prun::test::fp8_activation_test {
namespace {

using cuda::Activation;
using cuda::Fp8Factor;

using Fp8Activation = CudaTest;

struct Factor {
  Factor(std::int64_t rows, std::int64_t summed) : Factor(rows, summed, cuda::fp8_row_scales(rows, summed)) {}
  Factor(std::int64_t rows, std::int64_t summed, std::int64_t count)
      : codes(DType::u8, {rows, summed}), scales(DType::f32, {count}) {}
  Fp8Factor get() const { return {codes.as<std::uint8_t>(), scales.as<float>()}; }
  OnDevice codes, scales;
};

void expect_same(Factor& one, Factor& other, const char* what) {
  EXPECT_EQ(one.codes.value().bytes(), other.codes.value().bytes()) << what;
  EXPECT_EQ(one.scales.value().bytes(), other.scales.value().bytes()) << what;
}

// The kernels that do the same in two passes.
template <class T>
struct Apart {
  void (*forward)(const T*, T*, std::int64_t, std::int64_t, cuda::Stream);
  void (*backward)(const T*, const T*, T*, std::int64_t, std::int64_t, cuda::Stream);
};
template <class T>
Apart<T> apart(Activation kind) {
  if (kind == Activation::swiglu) return {cuda::swiglu<T>, cuda::swiglu_grad<T>};
  if (kind == Activation::geglu) return {cuda::geglu<T>, cuda::geglu_grad<T>};
  return {[](const T* x, T* y, std::int64_t rows, std::int64_t width, cuda::Stream s) {
            cuda::gelu(x, y, rows * width, s);
          },
          [](const T* dy, const T* x, T* dx, std::int64_t rows, std::int64_t width, cuda::Stream s) {
            cuda::gelu_grad(dy, x, dx, rows * width, s);
          }};
}

// The same with squares of y transposed beside its rows.
template <class T>
void check_squares(Activation kind, const OnDevice& x, OnDevice& want_y, Factor& want_rows, std::int64_t rows,
                   std::int64_t width) {
  OnDevice y(dtype_of<T>(), {rows, width});
  const auto count = cuda::fp8_square_scales(width, rows);
  Factor by_rows(rows, width), squares(width, rows, count), want_squares(width, rows, count);
  cuda::squares_to_fp8(want_y.as<const T>(), rows, width, true, want_squares.get(), nullptr);
  cuda::activation_to_fp8(kind, x.as<const T>(), y.as<T>(), rows, width, by_rows.get(), squares.get(),
                          nullptr);
  EXPECT_EQ(y.value().bytes(), want_y.value().bytes());
  expect_same(by_rows, want_rows, "y by rows");
  expect_same(squares, want_squares, "y by squares");
}

template <class T>
void check(Activation kind, std::int64_t rows, std::int64_t width, double wrong) {
  const std::int64_t in = kind == Activation::gelu ? width : 2 * width;
  Value given = uneven_numbers(dtype_of<T>(), rows, in, 1);
  if (wrong != 0) given.set(static_cast<std::size_t>(3 * in + 5), wrong);
  const OnDevice x(given), dy(uneven_numbers(dtype_of<T>(), rows, width, 2));
  OnDevice y(dtype_of<T>(), {rows, width}), same_y = OnDevice(y.value()), dx(dtype_of<T>(), {rows, in}),
                                            same_dx = OnDevice(dx.value());
  Factor by_rows(rows, width), as_rows(rows, width), back_rows(rows, in), as_back_rows(rows, in),
      back_columns(in, rows), as_back_columns(in, rows);
  const Apart<T> by = apart<T>(kind);
  by.forward(x.as<const T>(), same_y.as<T>(), rows, width, nullptr);
  cuda::rows_to_fp8(same_y.as<const T>(), rows, width, as_rows.get(), nullptr);
  cuda::activation_to_fp8(kind, x.as<const T>(), y.as<T>(), rows, width, by_rows.get(), {}, nullptr);
  EXPECT_EQ(y.value().bytes(), same_y.value().bytes());
  expect_same(by_rows, as_rows, "y");
  check_squares<T>(kind, x, same_y, as_rows, rows, width);
  by.backward(dy.as<const T>(), x.as<const T>(), same_dx.as<T>(), rows, width, nullptr);
  cuda::rows_and_columns_to_fp8(same_dx.as<const T>(), rows, in, as_back_rows.get(), as_back_columns.get(),
                                nullptr);
  cuda::activation_grad_to_fp8(kind, dy.as<const T>(), x.as<const T>(), dx.as<T>(), rows, width,
                               back_rows.get(), back_columns.get(), nullptr);
  EXPECT_EQ(dx.value().bytes(), same_dx.value().bytes());
  expect_same(back_rows, as_back_rows, "dx by rows");
  expect_same(back_columns, as_back_columns, "dx by columns");
}

TEST_F(Fp8Activation, WritesWhatTwoKernelsWrite) {
  for (const double wrong : {0.0, std::numeric_limits<double>::infinity()}) {
    for (const Activation kind : {Activation::gelu, Activation::swiglu, Activation::geglu}) {
      check<bf16>(kind, 256, 384, wrong);
      check<f16>(kind, 144, 128, wrong);
    }
    check<bf16>(Activation::gelu, 144, 208, wrong);
  }
}

}  // namespace
}  // namespace prun::test::fp8_activation_test
