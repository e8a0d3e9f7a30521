#include "activation/cuda.hpp"

#include "bias/cuda.hpp"
#include "tests/cuda/device_value.hpp"

namespace prun::test::activation_test {
namespace {

using Activations = CudaTest;

TEST_F(Activations, Gelu) {
  for_rows([]<class T>(std::int64_t rows, std::int64_t width, std::int64_t offset) {
    const DType type = dtype_of<T>();
    const std::int64_t n = rows * width;
    const Value x = random_value(type, {n}, 1, 6), d = random_value(type, {n}, 2);
    OnDevice in(x, offset), dy(d, offset), y(type, {n}, offset), dx(type, {n}, offset);
    cuda::gelu(in.as<T>(), y.as<T>(), n, nullptr);
    expect_close(y.value(), cpu("gelu", {x, Value(type, {n})})[1].numbers(), tolerance(type), "y");
    cuda::gelu_grad(dy.as<T>(), in.as<T>(), dx.as<T>(), n, nullptr);
    expect_close(dx.value(), cpu("gelu_grad", {d, x, Value(type, {n})})[2].numbers(), tolerance(type), "dx");
  });
}

TEST_F(Activations, GeluOfErf) {
  for_rows([]<class T>(std::int64_t rows, std::int64_t width, std::int64_t offset) {
    const DType type = dtype_of<T>();
    const std::int64_t n = rows * width;
    const Value x = random_value(type, {n}, 1, 6), d = random_value(type, {n}, 2);
    OnDevice in(x, offset), dy(d, offset), y(type, {n}, offset), dx(type, {n}, offset);
    cuda::gelu_erf(in.as<T>(), y.as<T>(), n, nullptr);
    expect_close(y.value(), cpu("gelu_erf", {x, Value(type, {n})})[1].numbers(), tolerance(type), "y");
    cuda::gelu_erf_grad(dy.as<T>(), in.as<T>(), dx.as<T>(), n, nullptr);
    expect_close(dx.value(), cpu("gelu_erf_grad", {d, x, Value(type, {n})})[2].numbers(), tolerance(type),
                 "dx");
  });
}

TEST_F(Activations, FarOutGeluAndSwigluStayFinite) {
  const Value x(DType::f32, {2, 2, 4}, {-1e4, -300, 300, 1e4, 1, 1, 1, 1, -90, -80, 80, 90, 2, 2, 2, 2});
  const Value ones(DType::f32, {2, 4}, std::vector<double>(8, 1));
  OnDevice in(x), dy(ones), y(DType::f32, {2, 4}), dx(DType::f32, {2, 2, 4}), g(DType::f32, {16});
  cuda::swiglu(in.as<float>(), y.as<float>(), 2, 4, nullptr);
  expect_close(y.value(), cpu("swiglu", {x, Value(DType::f32, {2, 4})})[1].numbers(), 4e-6, "swiglu");
  cuda::swiglu_grad(dy.as<float>(), in.as<float>(), dx.as<float>(), 2, 4, nullptr);
  expect_close(dx.value(), cpu("swiglu_grad", {ones, x, Value(DType::f32, {2, 2, 4})})[2].numbers(), 4e-6,
               "dx");
  cuda::gelu(in.as<float>(), g.as<float>(), 16, nullptr);
  expect_close(g.value(), cpu("gelu", {x, Value(DType::f32, {2, 2, 4})})[1].numbers(), 4e-6, "gelu");
}

TEST_F(Activations, BiasAndGeluAreThoseOneAfterTheOther) {
  for_rows([]<class T>(std::int64_t rows, std::int64_t width, std::int64_t offset) {
    using C = cuda::Compute<T>;
    const DType type = dtype_of<T>();
    const Value x = random_value(type, {rows, width}, 1, 4), b = random_value(type, {width}, 2);
    const Value d = random_value(type, {rows, width}, 3), before = random_value(sum_type<T>(), {width}, 4);
    Value spread(type, {rows, width});
    for (std::size_t i = 0; i < spread.size(); ++i) spread.set(i, b[i % static_cast<std::size_t>(width)]);
    const Value none(type, {rows, width}), sum = cpu("add", {x, spread, none})[2];
    const Value dx_want = cpu("gelu_grad", {d, sum, none})[2];

    OnDevice in(x, offset), bias(b, offset), dy(d, offset), dbias(before);
    OnDevice y(type, {rows, width}, offset), dx(type, {rows, width}, offset);
    cuda::bias_gelu(in.as<T>(), bias.as<T>(), y.as<T>(), rows, width, nullptr);
    expect_close(y.value(), cpu("gelu", {sum, none})[1].numbers(), tolerance(type), "y");
    {
      const DeviceWorkspace workspace(cuda::bias_gelu_grad_workspace<T>(rows, width));
      cuda::bias_gelu_grad(dy.as<T>(), in.as<T>(), bias.as<T>(), dx.as<T>(), dbias.as<C>(), rows, width,
                           workspace.data(), nullptr);
    }
    const Value got = dx.value();
    expect_close(got, dx_want.numbers(), tolerance(type), "dx");
    expect_close(dbias.value(), cpu("bias_grad", {got, before})[1].numbers(), 16 * tolerance(sum_type<T>()),
                 "dbias");
  });
}

TEST_F(Activations, Geglu) {
  for_rows([]<class T>(std::int64_t rows, std::int64_t width, std::int64_t offset) {
    const DType type = dtype_of<T>();
    const Value x = random_value(type, {rows, 2, width}, 1, 6), d = random_value(type, {rows, width}, 2);
    OnDevice in(x, offset), dy(d, offset), y(type, {rows, width}, offset), dx(type, {rows, 2, width}, offset);
    cuda::geglu(in.as<T>(), y.as<T>(), rows, width, nullptr);
    expect_close(y.value(), cpu("geglu", {x, Value(type, {rows, width})})[1].numbers(), tolerance(type), "y");
    cuda::geglu_grad(dy.as<T>(), in.as<T>(), dx.as<T>(), rows, width, nullptr);
    expect_close(dx.value(), cpu("geglu_grad", {d, x, Value(type, {rows, 2, width})})[2].numbers(),
                 tolerance(type), "dx");
  });
}

TEST_F(Activations, GegluOfErf) {
  for_rows([]<class T>(std::int64_t rows, std::int64_t width, std::int64_t offset) {
    const DType type = dtype_of<T>();
    const Value x = random_value(type, {rows, 2, width}, 1, 6), d = random_value(type, {rows, width}, 2);
    OnDevice in(x, offset), dy(d, offset), y(type, {rows, width}, offset), dx(type, {rows, 2, width}, offset);
    cuda::geglu_erf(in.as<T>(), y.as<T>(), rows, width, nullptr);
    expect_close(y.value(), cpu("geglu_erf", {x, Value(type, {rows, width})})[1].numbers(), tolerance(type),
                 "y");
    cuda::geglu_erf_grad(dy.as<T>(), in.as<T>(), dx.as<T>(), rows, width, nullptr);
    expect_close(dx.value(), cpu("geglu_erf_grad", {d, x, Value(type, {rows, 2, width})})[2].numbers(),
                 tolerance(type), "dx");
  });
}

TEST_F(Activations, Swiglu) {
  for_rows([]<class T>(std::int64_t rows, std::int64_t width, std::int64_t offset) {
    const DType type = dtype_of<T>();
    const Value x = random_value(type, {rows, 2, width}, 1, 6), d = random_value(type, {rows, width}, 2);
    OnDevice in(x, offset), dy(d, offset), y(type, {rows, width}, offset), dx(type, {rows, 2, width}, offset);
    cuda::swiglu(in.as<T>(), y.as<T>(), rows, width, nullptr);
    expect_close(y.value(), cpu("swiglu", {x, Value(type, {rows, width})})[1].numbers(), tolerance(type),
                 "y");
    cuda::swiglu_grad(dy.as<T>(), in.as<T>(), dx.as<T>(), rows, width, nullptr);
    expect_close(dx.value(), cpu("swiglu_grad", {d, x, Value(type, {rows, 2, width})})[2].numbers(),
                 tolerance(type), "dx");
  });
}

TEST_F(Activations, BiasGradientAddsToWhatIsThereOrBegins) {
  for_row_sums([]<class T, class S>(std::int64_t rows, std::int64_t width, std::int64_t offset) {
    const Value d = random_value(dtype_of<T>(), {rows, width}, 1),
                before = random_value(dtype_of<S>(), {width}, 2);
    OnDevice dy(d, offset), dbias(before);
    {
      const DeviceWorkspace workspace(cuda::bias_grad_workspace<T>(rows, width));
      cuda::bias_grad<T, S>(dy.as<T>(), dbias.as<S>(), rows, width, workspace.data(), nullptr);
    }
    expect_close(dbias.value(), cpu_sums("bias_grad", {d, before}, {1})[1].numbers(), close_sums<S>(16),
                 "dbias");
    OnDevice begun(poison(before)), added(zeros(before));
    {
      const DeviceWorkspace workspace(cuda::bias_grad_workspace<T>(rows, width));
      cuda::bias_grad<T, S>(dy.as<T>(), {begun.as<S>(), true}, rows, width, workspace.data(), nullptr);
      cuda::bias_grad<T, S>(dy.as<T>(), added.as<S>(), rows, width, workspace.data(), nullptr);
    }
    EXPECT_EQ(begun.value().bytes(), added.value().bytes());
  });
}

}  // namespace
}  // namespace prun::test::activation_test
