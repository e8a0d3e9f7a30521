#include "parts/cuda.hpp"

#include "tests/cuda/device_value.hpp"

namespace prun::test::parts_test {
namespace {

using Parts = CudaTest;

TEST_F(Parts, AreAddedAndTakenOutAsTheCpuDoes) {
  for_types([&]<class T>(std::int64_t offset) {
    const DType type = dtype_of<T>();
    for (const auto& d :
         std::vector<std::vector<std::int64_t>>{{1, 1, 3, 1}, {2, 3, 6, 5}, {3, 7, 4, 16}, {2, 2, 10, 64}}) {
      SCOPED_TRACE("of " + std::to_string(d[2]) + " x " + std::to_string(d[3]));
      const std::int64_t last = d[2] - 1;
      const Value a = random_value(type, d, 1), b = random_value(type, {d[0], d[1], d[2] - 2, d[3]}, 2),
                  c = random_value(type, {d[0], d[1], 1, d[3]}, 3);
      const Value want =
          cpu("add_parts", {a, b, Value(), c, Value(type, d)},
              {{.i = 2}, {.i = 0}, {.i = d[2] - 2}, {.i = 0}, {.i = 0}, {.i = last}, {.i = d[2]}})[4];
      OnDevice on_a(a, offset), on_b(b, offset), on_c(c, offset), y(type, d, offset);
      cuda::AddedParts<T> parts;
      parts.from[0] = on_b.as<T>();
      parts.at[0] = {0, (d[2] - 2) * d[3]};
      parts.from[2] = on_c.as<T>();
      parts.at[2] = {last * d[3], d[2] * d[3]};
      const cuda::PartsShape shape{d[0] * d[1], d[2] * d[3]};
      cuda::add_parts<T>(on_a.as<T>(), parts, y.as<T>(), shape, nullptr);
      EXPECT_EQ(y.value().bytes(), want.bytes());
      cuda::add_parts<T>(on_a.as<T>(), parts, on_a.as<T>(), shape, nullptr);
      EXPECT_EQ(on_a.value().bytes(), want.bytes()) << "in place";
      OnDevice taken(type, c.dims(), offset);
      cuda::take_part<T>(y.as<T>(), taken.as<T>(), parts.at[2], shape, nullptr);
      EXPECT_EQ(
          taken.value().bytes(),
          cpu("take_part", {want, Value(type, c.dims())}, {{.i = 2}, {.i = last}, {.i = d[2]}})[1].bytes());
    }
  });
}

TEST_F(Parts, TwoValuesArePutBehindEachOther) {
  for_types([&]<class T>(std::int64_t offset) {
    const DType type = dtype_of<T>();
    for (const std::int64_t width : {1, 5, 16, 64}) {
      const Value a = random_value(type, {2, 3, width}, 1), b = random_value(type, {2, 3, width}, 2),
                  want = cpu("pair", {a, b, Value(type, {2, 3, 2 * width})})[2];
      OnDevice on_a(a, offset), on_b(b, offset), y(type, {2, 3, 2 * width}, offset);
      const cuda::PartsShape shape{6, 2 * width};
      cuda::put_part<T>(on_a.as<T>(), y.as<T>(), {0, width}, shape, nullptr);
      cuda::put_part<T>(on_b.as<T>(), y.as<T>(), {width, 2 * width}, shape, nullptr);
      EXPECT_EQ(y.value().bytes(), want.bytes()) << width;
    }
  });
}

// Tokens of a decoder: the last of each sample's, and the first.
TEST_F(Parts, OfNumbersAreTakenOut) {
  for (const std::int64_t begin : {std::int64_t{0}, std::int64_t{3}, std::int64_t{4}}) {
    std::vector<std::int64_t> numbers;
    for (std::int64_t i = 0; i < 24; ++i) numbers.push_back(i * 7919 - 3);
    const Value x = integers(DType::i32, {3, 8}, numbers), y(DType::i32, {3, 8 - begin});
    OnDevice on_x(x), taken(y);
    cuda::take_part<std::int32_t>(on_x.as<std::int32_t>(), taken.as<std::int32_t>(), {begin, 8}, {3, 8},
                                  nullptr);
    EXPECT_EQ(taken.value().bytes(), cpu("take_part", {x, y}, {{.i = 1}, {.i = begin}, {.i = 8}})[1].bytes());
  }
}

}  // namespace
}  // namespace prun::test::parts_test
