#include "dropout/cuda.hpp"

#include "tests/cuda/device_value.hpp"

namespace prun::test::dropout_test {
namespace {

using Dropout = CudaTest;

TEST_F(Dropout, DropsWhatTheCpuDrops) {
  const std::int64_t far = (std::int64_t{5} << 32) + 7;  // a sample number of more than 32 bits
  for_types([&]<class T>(std::int64_t offset) {
    const DType type = dtype_of<T>();
    for (std::int64_t width : {1, 6, 8, 64, 100, 768, 1032})
      for (std::int64_t first : {0, 4, 5}) {
        SCOPED_TRACE("width " + std::to_string(width) + " from channel " + std::to_string(first));
        const Value x = random_value(type, {2, 5, width}, 1), samples = integers(DType::i64, {2}, {3, far});
        const Value seed = number(0x1p40 + 12345);
        const Value want = cpu("dropout", {x, samples, seed, Value(type, x.dims())}, {{.f = 0.3}, {.i = 2}},
                               {{0, 1, 1000}, {0, 2, first}}, 11)[3];
        OnDevice in(x, offset), ids(samples), seeds(seed), y(type, x.dims(), offset);
        cuda::dropout(in.as<T>(), ids.as<std::int64_t>(), seeds.as<double>(), y.as<T>(),
                      {2, 5, width, 1000, first, 0.3, 11, 2}, nullptr);
        EXPECT_EQ(y.value().bytes(), want.bytes());
      }
  });
}

TEST_F(Dropout, ZeroDropsNothing) {
  const Value x = random_value(DType::bf16, {1, 3, 40}, 1);
  OnDevice in(x), samples(integers(DType::i64, {1}, {3})), seed(number(1)), y(DType::bf16, x.dims());
  cuda::dropout(in.as<bf16>(), samples.as<std::int64_t>(), seed.as<double>(), y.as<bf16>(),
                {1, 3, 40, 0, 0, 0, 0, 0}, nullptr);
  EXPECT_EQ(y.value().bytes(), x.bytes());
}

}  // namespace
}  // namespace prun::test::dropout_test
