#include "fp8_counts/cuda.hpp"

#include "tests/cuda/device_value.hpp"
#include "tests/support/fp8_oracle.hpp"

namespace prun::test::fp8_counts_test {
namespace {

using Fp8Counts = CudaTest;

std::vector<Attr> attrs(Fp8Blocks blocks) {
  return {Attr{.i = 1}, Attr{.i = 1}, Attr{.i = 0}, Attr{.i = 0}, Attr{.i = std::int64_t(blocks)},
          Attr{.i = 0}, Attr{.i = -1}};
}

template <class T>
void check(const Value& x, std::int64_t offset, double on) {
  const std::int64_t rows = x.dims()[0], columns = x.dims()[1];
  const Value counting(DType::f64, {}, {on}), before(DType::f64, {1, 3}, {5, 6, 7});
  const OnDevice on_x(x, offset), on_counting(counting);
  for (const Fp8Blocks blocks : {Fp8Blocks::rows, Fp8Blocks::columns, Fp8Blocks::squares}) {
    OnDevice counts(before), peaks(before);
    cuda::count_fp8_codes(blocks, on_x.as<const T>(), rows, columns, on_counting.as<const double>(),
                          counts.as<double>(), nullptr);
    cuda::peak_fp8_scales(blocks, on_x.as<const T>(), rows, columns, on_counting.as<const double>(),
                          peaks.as<double>(), nullptr);
    EXPECT_EQ(counts.value().numbers(),
              cpu("count_fp8_codes", {x, counting, before}, attrs(blocks))[2].numbers());
    EXPECT_EQ(peaks.value().numbers(),
              cpu("peak_fp8_scales", {x, counting, before}, attrs(blocks))[2].numbers());
    EXPECT_EQ(counts.value().numbers() == before.numbers(), on == 0);
  }
}

TEST_F(Fp8Counts, AreTheCpus) {
  for_types([]<class T>(std::int64_t offset) {
    if constexpr (!std::is_same_v<T, double>) {
      Value x = steep_numbers(dtype_of<T>(), 256, 384, 1);
      x.set(200 * 384 + 300, std::nan(""));
      check<T>(x, offset, 1);
      check<T>(x, offset, 0);
      check<T>(steep_numbers(dtype_of<T>(), 144, 208, 2), offset, 1);
    }
  });
}

}  // namespace
}  // namespace prun::test::fp8_counts_test
