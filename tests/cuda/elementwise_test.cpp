#include "elementwise/cuda.hpp"

#include "memory/cuda.hpp"
#include "tests/cuda/device_value.hpp"

namespace prun::test::elementwise_test {
namespace {

using Elementwise = CudaTest;

const std::vector<std::int64_t> lengths = {0, 1, 7, 8, 1000, 4096, 100'003};

template <class Body>
void for_lengths(Body body) {
  for_types([&]<class T>(std::int64_t offset) {
    for (std::int64_t n : lengths) {
      SCOPED_TRACE(n);
      body.template operator()<T>(n, offset);
    }
  });
}

TEST_F(Elementwise, AddAndScaleHaveTheBitsOfTheCpu) {
  for_lengths([]<class T>(std::int64_t n, std::int64_t offset) {
    const DType type = dtype_of<T>();
    const Value a = random_value(type, {n}, 1), b = random_value(type, {n}, 2);
    OnDevice left(a, offset), right(b, offset), sum(type, {n}, offset), scaled(type, {n}, offset);
    cuda::add(left.as<T>(), right.as<T>(), sum.as<T>(), n, nullptr);
    EXPECT_EQ(sum.value().bytes(), cpu("add", {a, b, Value(type, {n})})[2].bytes());
    cuda::scale(left.as<T>(), scaled.as<T>(), 0.3, n, nullptr);
    EXPECT_EQ(scaled.value().bytes(), cpu("scale", {a, Value(type, {n})}, {{.f = 0.3}})[1].bytes());
    cuda::add(left.as<T>(), right.as<T>(), left.as<T>(), n, nullptr);
    EXPECT_EQ(left.value().bytes(), sum.value().bytes()) << "in place";
  });
}

template <class From, class To>
void expect_cast(const Value& x, std::int64_t n, std::int64_t offset) {
  OnDevice from(x, offset), to(dtype_of<To>(), {n}, offset);
  cuda::cast(from.as<From>(), to.as<To>(), n, nullptr);
  EXPECT_EQ(to.value().bytes(), cpu("cast", {x, Value(dtype_of<To>(), {n})})[1].bytes());
}

TEST_F(Elementwise, CastHasTheBitsOfTheCpu) {
  for_lengths([]<class T>(std::int64_t n, std::int64_t offset) {
    const Value x = random_value(dtype_of<T>(), {n}, 1, 1e3);
    expect_cast<T, double>(x, n, offset);
    expect_cast<T, float>(x, n, offset);
    expect_cast<T, bf16>(x, n, offset);
  });
}

TEST_F(Elementwise, AccumulateHasTheBitsOfTheCpu) {
  for_sums([]<class T, class S>(std::int64_t offset) {
    for (std::int64_t n : lengths) {
      SCOPED_TRACE(n);
      const Value x = random_value(dtype_of<T>(), {n}, 1), before = random_value(dtype_of<S>(), {n}, 2);
      OnDevice from(x, offset), sum(before, offset);
      cuda::accumulate(from.as<T>(), sum.as<S>(), n, nullptr);
      EXPECT_EQ(sum.value().bytes(), cpu("accumulate", {x, before})[1].bytes());
    }
  });
}

TEST_F(Elementwise, ReciprocalOfANumber) {
  OnDevice x(number(3)), y(DType::f64, {});
  cuda::reciprocal(x.as<double>(), y.as<double>(), nullptr);
  EXPECT_EQ(y.value()[0], 1.0 / 3.0);
}

TEST_F(Elementwise, ChooseTakesOneOfTwoNumbers) {
  OnDevice none(number(0)), some(number(-2)), a(number(3)), b(number(4)), y(DType::f64, {});
  cuda::choose(some.as<double>(), a.as<double>(), b.as<double>(), y.as<double>(), nullptr);
  EXPECT_EQ(y.value()[0], 3);
  cuda::choose(none.as<double>(), a.as<double>(), b.as<double>(), y.as<double>(), nullptr);
  EXPECT_EQ(y.value()[0], 4);
}

TEST_F(Elementwise, ZeroAndCopyMoveBytes) {
  const Value x = random_value(DType::f32, {1001}, 1);
  OnDevice from(x), to(DType::f32, {1001});
  cuda::copy(from.as<void>(), to.as<void>(), 4004, nullptr);
  EXPECT_EQ(to.value().bytes(), x.bytes());
  cuda::zero(to.as<void>(), 4004, nullptr);
  EXPECT_EQ(to.value().bytes(), Value(DType::f32, {1001}).bytes());
}

}  // namespace
}  // namespace prun::test::elementwise_test
