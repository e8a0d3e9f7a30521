#include "cuda/fp8_blocks.hpp"

#include <limits>
#include <optional>
#include <tuple>

#include "tests/cuda/device_value.hpp"
#include "tests/support/fp8_oracle.hpp"
#ifndef PRUN_SIMT
#include "cuda/gemm.hpp"
#endif

namespace prun::test::fp8_blocks_test {
namespace {

using cuda::Fp8Factor;

using Fp8Blocks = CudaTest;

// A factor of so many rows along what is summed, and its scales, on the device.
struct OnGpu {
  OnGpu(std::int64_t rows, std::int64_t summed, std::int64_t scale_count)
      : columns(static_cast<std::size_t>(summed)),
        codes(DType::u8, {rows, summed}),
        scales(DType::f32, {scale_count}) {}
  Fp8Factor factor() const { return {codes.as<std::uint8_t>(), scales.as<float>()}; }

  // What the codes stand for, in the order of the factor; scale_at(row, block) is where a scale lies.
  template <class Place>
  std::vector<double> numbers(Place scale_at) {
    const Value all_codes = codes.value(), all_scales = scales.value();
    std::vector<double> numbers(all_codes.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const auto code = static_cast<unsigned char>(all_codes.bytes()[i]);
      numbers[i] = e4m3_number(code) * all_scales[scale_at(i / columns, i % columns / 128)];
    }
    return numbers;
  }

  std::size_t columns;
  OnDevice codes, scales;
};

std::vector<double> transposed(const std::vector<double>& x, std::size_t columns) {
  std::vector<double> result(x.size());
  const std::size_t rows = x.size() / columns;
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) result[j * rows + i] = x[i * columns + j];
  return result;
}

void expect_equal(const std::vector<double>& actual, const std::vector<double>& expected, const char* what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const bool same = std::isnan(expected[i]) ? std::isnan(actual[i]) : actual[i] == expected[i];
    ASSERT_TRUE(same) << what << "[" << i << "] is " << actual[i] << ", should be " << expected[i];
  }
}

template <class T>
void check(const Value& x, std::int64_t rows, std::int64_t columns, std::int64_t offset) {
  const OnDevice in(x, offset);
  const auto wide = static_cast<std::size_t>(columns), tall = static_cast<std::size_t>(rows);
  const auto oracle = [&](std::size_t down, std::size_t across) {
    return rounded_to_fp8(x, wide, down, across).numbers();
  };
  OnGpu by_rows(rows, columns, cuda::fp8_row_scales(rows, columns));
  cuda::rows_to_fp8(in.as<const T>(), rows, columns, by_rows.factor(), nullptr);
  expect_equal(by_rows.numbers([&](std::size_t r, std::size_t k) { return k * tall + r; }), oracle(1, 128),
               "rows");
  OnGpu by_columns(columns, rows, cuda::fp8_row_scales(columns, rows));
  cuda::columns_to_fp8(in.as<const T>(), rows, columns, by_columns.factor(), nullptr);
  expect_equal(by_columns.numbers([&](std::size_t r, std::size_t k) { return k * wide + r; }),
               transposed(oracle(128, 1), wide), "columns");
  OnGpu again(rows, columns, cuda::fp8_row_scales(rows, columns)),
      turned_again(columns, rows, cuda::fp8_row_scales(columns, rows));
  cuda::rows_and_columns_to_fp8(in.as<const T>(), rows, columns, again.factor(), turned_again.factor(),
                                nullptr);
  for (const auto& [one, other] : {std::pair(&again, &by_rows), {&turned_again, &by_columns}}) {
    EXPECT_EQ(one->codes.value().bytes(), other->codes.value().bytes());
    EXPECT_EQ(one->scales.value().bytes(), other->scales.value().bytes());
  }
  const auto squares_at = [](std::int64_t summed) {
    const auto stride = static_cast<std::size_t>(cuda::fp8_square_stride(summed));
    return [stride](std::size_t r, std::size_t k) { return r / 128 * stride + k; };
  };
  OnGpu squares(rows, columns, cuda::fp8_square_scales(rows, columns));
  cuda::squares_to_fp8(in.as<const T>(), rows, columns, false, squares.factor(), nullptr);
  expect_equal(squares.numbers(squares_at(columns)), oracle(128, 128), "squares");
  OnGpu turned(columns, rows, cuda::fp8_square_scales(columns, rows));
  cuda::squares_to_fp8(in.as<const T>(), rows, columns, true, turned.factor(), nullptr);
  expect_equal(turned.numbers(squares_at(rows)), transposed(oracle(128, 128), wide), "squares transposed");
}

// With rows at once: the same codes and scales.
template <class T>
void check_twice(const Value& x, std::int64_t rows, std::int64_t columns, std::int64_t offset) {
  const OnDevice in(x, offset);
  OnGpu by_rows(rows, columns, cuda::fp8_row_scales(rows, columns)),
      rows_again(rows, columns, cuda::fp8_row_scales(rows, columns)),
      squares(columns, rows, cuda::fp8_square_scales(columns, rows)),
      squares_again(columns, rows, cuda::fp8_square_scales(columns, rows));
  cuda::rows_to_fp8(in.as<const T>(), rows, columns, by_rows.factor(), nullptr);
  cuda::squares_to_fp8(in.as<const T>(), rows, columns, true, squares.factor(), nullptr);
  cuda::rows_and_squares_to_fp8(in.as<const T>(), rows, columns, rows_again.factor(), squares_again.factor(),
                                nullptr);
  for (const auto& [one, other] : {std::pair(&rows_again, &by_rows), {&squares_again, &squares}}) {
    EXPECT_EQ(one->codes.value().bytes(), other->codes.value().bytes());
    EXPECT_EQ(one->scales.value().bytes(), other->scales.value().bytes());
  }
}

template <class Body>
void for_narrow_types(Body body) {
  for_types([&]<class T>(std::int64_t offset) {
    if constexpr (!std::is_same_v<T, double>) body.template operator()<T>(offset);
  });
}

TEST_F(Fp8Blocks, AreWhatTheOracleRoundsTo) {
  for_narrow_types([]<class T>(std::int64_t offset) {
    Value x = uneven_numbers(dtype_of<T>(), 256, 384, 1);
    check<T>(x, 256, 384, offset);
    check_twice<T>(x, 256, 384, offset);
    x.set(200 * 384 + 300, std::nan("")), x.set(5 * 384 + 1, std::numeric_limits<double>::infinity());
    check<T>(x, 256, 384, offset);
    check_twice<T>(x, 256, 384, offset);
    check<T>(uneven_numbers(dtype_of<T>(), 144, 208, 2), 144, 208, offset);
    check_twice<T>(uneven_numbers(dtype_of<T>(), 640, 208, 2), 640, 208, offset);
    check<T>(uneven_numbers(dtype_of<T>(), 16, 400, 3), 16, 400, offset);
  });
}

// Every bf16 that rounds to a number in it, where it alone decides on its scale and where others do.
TEST_F(Fp8Blocks, EveryNumberIsRoundedAsTheOracleRounds) {
  constexpr std::int64_t rows = 512, columns = 128;
  Value x(DType::bf16, {rows, columns});
  for (std::size_t i = 0; i < x.size(); ++i) {
    bf16 number;
    number.bits = static_cast<std::uint16_t>(i);
    const double given = static_cast<double>(static_cast<float>(number));
    x.set(i, std::abs(given) < 3.2e38 ? given : 1.0);
  }
  check<bf16>(x, rows, columns, 0);
}

#ifndef PRUN_SIMT
template <class T>
void check_product(std::int64_t rows, std::int64_t in, std::int64_t out) {
  constexpr DType type = dtype_of<T>();
  const cuda::Gemm gemm;
  cuda::Product product{.m = rows, .n = out, .k = in, .transpose_b = true, .input = type, .output = type};
  product.fp8 = true, product.epilogue = cuda::Epilogue::bias;
  std::optional<cuda::GemmPlan> plan;
  try {
    plan.emplace(gemm.prepare(product));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    GTEST_SKIP() << error.what();
  }
  const Value x = uneven_numbers(type, rows, in, 1), weight = uneven_numbers(type, out, in, 2),
              bias = uneven_numbers(type, 1, out, 3);
  const OnDevice on_x(x), on_weight(weight), on_bias(bias);
  OnDevice y(type, {rows, out});
  const OnGpu a(rows, in, cuda::fp8_row_scales(rows, in)), b(out, in, cuda::fp8_square_scales(out, in));
  cuda::rows_to_fp8(on_x.as<const T>(), rows, in, a.factor(), nullptr);
  cuda::squares_to_fp8(on_weight.as<const T>(), out, in, false, b.factor(), nullptr);
  const DeviceWorkspace workspace(cuda::gemm_workspace);
  gemm.run(*plan,
           {a.codes.as<void>(), b.codes.as<void>(), nullptr, on_bias.as<void>(), y.as<void>(),
            workspace.data(), nullptr, a.scales.as<float>(), b.scales.as<float>()},
           nullptr);
  const std::vector<Attr> attrs = {Attr{.i = 1}, Attr{.i = 1}};
  const Value expected =
      cpu("linear", {x, weight, Value(type, {out}, bias.numbers()), Value(type, {rows, out})}, attrs)[3];
  // Of terms that cancel, what the largest of them leaves.
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) largest = std::max(largest, std::abs(expected[i]));
  const Value actual = y.value();
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(actual[i], expected[i], 0.01 * std::abs(expected[i]) + 1e-4 * largest) << i;
}

// Where scales lie is the library's to say: a product of uneven blocks is right only if they lie there.
TEST_F(Fp8Blocks, ProductsAreTheCpus) {
  for (const auto& [rows, in, out] : {std::tuple(384, 640, 256), {128, 1600, 208}, {256, 912, 1600}}) {
    check_product<bf16>(rows, in, out);
    check_product<float>(rows, in, out);
  }
}
#endif

}  // namespace
}  // namespace prun::test::fp8_blocks_test
