#include "linear/cuda.hpp"

#include "tests/cuda/gemm_fixture.hpp"

namespace prun::test::linear_test {
namespace {

using cuda::LinearShape;

// Against the CPU's kernels, which compute in the same types and round where these do.
class Linear : public GemmTest {
 protected:
  static std::vector<LinearShape> shapes() {
    std::vector<LinearShape> all = {{1, 1, 1},      {7, 33, 65},   {64, 128, 96}, {300, 72, 129},
                                    {9, 16, 50257}, {5, 1003, 24}, {1000, 8, 40}};
    std::mt19937 generator(5);
    for (int i = 0; i < 3; ++i)
      all.push_back({static_cast<std::int64_t>(1 + generator() % 300),
                     static_cast<std::int64_t>(1 + generator() % 300),
                     static_cast<std::int64_t>(1 + generator() % 300)});
    return all;
  }

  template <class Body>
  static void for_each_shape(Body body) {
    for (const LinearShape& shape : shapes()) {
      SCOPED_TRACE("rows " + std::to_string(shape.rows) + ", in " + std::to_string(shape.in) + ", out " +
                   std::to_string(shape.out));
      body(shape);
    }
  }
  template <class Body>
  static void for_shapes(Body body) {
    for_types([&]<class T>(std::int64_t offset) {
      for_each_shape([&](const LinearShape& shape) { body.template operator()<T>(shape, offset); });
    });
  }

  void run(const Product& product, const cuda::GemmOperands& operands) const {
    gemm().run(gemm().prepare(product), operands, nullptr);
  }
};

// Sums in another order differ by more than one rounding.
template <class T>
double close() {
  return close_sums<T>(8);
}

TEST_F(Linear, ForwardWithAndWithoutBias) {
  for_shapes([&]<class T>(LinearShape s, std::int64_t offset) {
    const DType type = dtype_of<T>();
    const Value x = random_value(type, {s.rows, s.in}, 1), weight = random_value(type, {s.out, s.in}, 2),
                bias = random_value(type, {s.out}, 3), empty(type, {s.rows, s.out});
    OnDevice xs(x, offset), weights(weight, offset), biases(bias, offset);
    for (bool with_bias : {false, true}) {
      const Value want =
          cpu("linear", {x, weight, with_bias ? bias : Value(), empty}, {{.i = 1}, {.i = 0}})[3];
      OnDevice y(type, {s.rows, s.out}, offset);
      s.bias = with_bias;
      s.alignment = cuda::alignment_of({xs.as<T>(), weights.as<T>(), biases.as<T>(), y.as<T>()});
      run(cuda::linear_product<T>(s),
          cuda::linear_operands<T>(xs.as<T>(), weights.as<T>(), with_bias ? biases.as<T>() : nullptr, nullptr,
                                   y.as<T>(), workspace()));
      expect_close(y.value(), want.numbers(), close<T>(), with_bias ? "y with bias" : "y");
    }
  });
}

TEST_F(Linear, ForwardOntoAResidual) {
  for_shapes([&]<class T>(LinearShape s, std::int64_t offset) {
    const DType type = dtype_of<T>();
    const Value x = random_value(type, {s.rows, s.in}, 1), weight = random_value(type, {s.out, s.in}, 2),
                residual = random_value(type, {s.rows, s.out}, 4), empty(type, {s.rows, s.out});
    const Value product = cpu("linear", {x, weight, Value(), empty}, {{.i = 1}, {.i = 0}})[3];
    const Value want = cpu("add", {product, residual, empty})[2];
    OnDevice xs(x, offset), weights(weight, offset), residuals(residual, offset),
        y(type, {s.rows, s.out}, offset);
    s.alignment = cuda::alignment_of({xs.as<T>(), weights.as<T>(), residuals.as<T>(), y.as<T>()});
    run(cuda::linear_product<T>(s), cuda::linear_operands<T>(xs.as<T>(), weights.as<T>(), nullptr,
                                                             residuals.as<T>(), y.as<T>(), workspace()));
    // The CPU rounds the product before it adds.
    expect_close(y.value(), want.numbers(), 2 * close<T>(), "y");
  });
}

TEST_F(Linear, InputGradient) {
  for_shapes([&]<class T>(LinearShape s, std::int64_t offset) {
    const DType type = dtype_of<T>();
    const Value dy = random_value(type, {s.rows, s.out}, 1), weight = random_value(type, {s.out, s.in}, 2);
    const Value want =
        cpu("linear_input_grad", {dy, weight, Value(type, {s.rows, s.in})}, {{.i = 1}, {.i = 0}})[2];
    OnDevice dys(dy, offset), weights(weight, offset), dx(type, {s.rows, s.in}, offset);
    s.alignment = cuda::alignment_of({dys.as<T>(), weights.as<T>(), dx.as<T>()});
    run(cuda::linear_input_grad_product<T>(s),
        cuda::linear_input_grad_operands(dys.as<T>(), weights.as<T>(), dx.as<T>(), workspace()));
    // Up to 50257 terms of either sign.
    expect_close(dx.value(), want.numbers(), close<T>() * (s.out > 10'000 ? 4 : 1), "dx");
  });
}

TEST_F(Linear, WeightGradientAddedOrWrittenFirst) {
  for_sums([&]<class T, class S>(std::int64_t offset) {
    for_each_shape([&](LinearShape s) {
      const DType type = dtype_of<T>(), sums = dtype_of<S>();
      const Value x = random_value(type, {s.rows, s.in}, 1), dy = random_value(type, {s.rows, s.out}, 2),
                  before = random_value(sums, {s.out, s.in}, 3);
      OnDevice xs(x, offset), dys(dy, offset), added(before, offset), written(sums, {s.out, s.in}, offset);
      s.alignment = cuda::alignment_of({xs.as<T>(), dys.as<T>(), added.as<S>(), written.as<S>()});
      const auto expect = [&](OnDevice& dweight, const Value& start, bool first) {
        const Value want = cpu_sums("linear_weight_grad", {x, dy, start}, {2}, {{.i = 1}, {.i = 0}})[2];
        run(cuda::linear_weight_grad_product<T, S>(s),
            cuda::linear_weight_grad_operands(xs.as<T>(), dys.as<T>(), dweight.as<S>(), first, workspace()));
        expect_close(dweight.value(), want.numbers(), close<S>(),
                     first ? "dweight, the first to write" : "dweight");
      };
      expect(added, before, false);
      expect(written, Value(sums, {s.out, s.in}), true);
    });
  });
}

// Microbatches one after the other give the sum, which in fp32 is never rounded to bf16.
TEST_F(Linear, WeightGradientOfSeveralMicrobatches) {
  constexpr std::int64_t rows = 64, in = 48, out = 80;
  Value want(DType::f32, {out, in});
  OnDevice dweight(DType::f32, {out, in});
  const cuda::GemmPlan plan = gemm().prepare(cuda::linear_weight_grad_product<bf16>({rows, in, out}));
  for (unsigned micro = 0; micro < 20; ++micro) {
    const Value x = random_value(DType::bf16, {rows, in}, 2 * micro),
                dy = random_value(DType::bf16, {rows, out}, 2 * micro + 1);
    want = cpu("linear_weight_grad", {x, dy, want}, {{.i = 1}, {.i = 0}})[2];
    const OnDevice xs(x), dys(dy);
    gemm().run(plan,
               cuda::linear_weight_grad_operands(xs.as<bf16>(), dys.as<bf16>(), dweight.as<float>(),
                                                 micro == 0, workspace()),
               nullptr);
    check_cuda(cudaDeviceSynchronize());
  }
  expect_close(dweight.value(), want.numbers(), 8 * tolerance(DType::f32), "dweight");
}

}  // namespace
}  // namespace prun::test::linear_test
