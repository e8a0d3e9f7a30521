#include "summands/cuda.hpp"

#include "tests/cuda/device_value.hpp"

namespace prun::test::summands_test {
namespace {

using Summands = CudaTest;

constexpr std::int64_t rows = 3, n = on_host ? 1500 : 150000;

Attr whole(std::int64_t i) {
  Attr attr;
  attr.i = i;
  return attr;
}
Attr real(double f) {
  Attr attr;
  attr.f = f;
  return attr;
}

TEST_F(Summands, MixWhatTheCpuMixes) {
  for_types([&]<class T>(std::int64_t offset) {
    constexpr DType type = dtype_of<T>();
    const DType computed = OpShape::statistics(type);
    const Value gradient = random_value(type, {rows, n}, 1), m = random_value(computed, {n}, 2),
                clip(DType::f64, {}, {0.7});
    OnDevice of(gradient, offset), before(m, offset), by(clip, 0), summand(computed, {rows, n}, offset);
    cuda::momentum_summand<T>({of.as<const T>(), before.as<const cuda::Compute<T>>(), by.as<const double>(),
                               summand.as<cuda::Compute<T>>(), rows * n, n, 0.9, 4},
                              nullptr);
    const Value want =
        cpu("momentum_summand", {gradient, m, clip, Value(computed, {rows, n})}, {real(0.9), whole(4)})[3];
    EXPECT_EQ(summand.value().bytes(), want.bytes());
  });
}

template <class C>
void expect_direction(double keeps, std::int64_t frozen_at) {
  constexpr DType type = dtype_of<C>();
  const Value sum = random_value(type, {n}, 1), m = random_value(type, {n}, 2), keep(DType::f64, {}, {keeps});
  Value v = random_value(type, {n}, 3);
  for (std::size_t i = 0; i < v.size(); ++i) v.set(i, std::abs(v[i]));
  OnDevice from(sum, 0), state(m, 0), squares(v, 0), kept(keep, 0), direction(type, {n}, 0);
  cuda::frozen_direction<C>({from.as<const C>(), state.as<C>(), squares.as<const C>(),
                             kept.as<const double>(), direction.as<C>(), n, 1e-6, 0.95, frozen_at},
                            nullptr);
  const std::vector<Value> want = cpu("frozen_direction", {sum, m, v, keep, Value(type, {n})},
                                      {real(1e-6), real(0.95), whole(frozen_at)});
  EXPECT_EQ(state.value().bytes(), want[1].bytes());
  EXPECT_EQ(direction.value().bytes(), want[4].bytes());
}

TEST_F(Summands, GiveTheDirectionOfTheCpu) {
  for (const double keep : {1.0, 0.0})
    for (const std::int64_t frozen_at : {0, 20}) {
      expect_direction<float>(keep, frozen_at);
      expect_direction<double>(keep, frozen_at);
    }
}

TEST_F(Summands, OfARankAloneAreHeldInTheirOrder) {
  const Value before = random_value(DType::f32, {rows, n}, 1), x = random_value(DType::f32, {n}, 2);
  OnDevice held(before, 0), next(x, 0);
  cuda::keep_summand(next.as<const void>(), held.as<void>(), n * size_of(DType::f32), rows, nullptr);
  EXPECT_EQ(held.value().bytes(), cpu("keep_summand", {x, before}, {})[1].bytes());
}

}  // namespace
}  // namespace prun::test::summands_test
