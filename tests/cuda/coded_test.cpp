#include "coded/cuda.hpp"

#include <cmath>

#include "prun/block_codes.hpp"
#include "tests/cuda/device_value.hpp"

namespace prun::test::coded_test {
namespace {

using Coded = CudaTest;

Attr whole(std::int64_t i) {
  Attr attr;
  attr.i = i;
  return attr;
}

constexpr std::int64_t ranks = 3, blocks = on_host ? 11 : 3001, n = blocks * code_block;

// Blocks of quite different sizes, one of them of zeros and one with a number that is not finite.
Value numbers(DType type) {
  Value x = random_value(type, {ranks * n}, 3);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t block = i / code_block % blocks;
    x.set(i, block == 4 ? 0.0 : x[i] * std::pow(4.0, static_cast<double>(block % 9) - 5));
  }
  x.set(2 * code_block + 5, std::nan(""));
  return x;
}

// Which bits a NaN has, each device decides.
void expect_same_numbers(const Value& actual, const Value& expected, std::int64_t bits) {
  ASSERT_EQ(actual.size(), expected.size());
  std::size_t different = 0, none = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const bool is_none = std::isnan(expected[i]);
    none += is_none ? 1 : 0;
    different += is_none ? !std::isnan(actual[i]) : actual[i] != expected[i];
  }
  EXPECT_EQ(different, 0U) << bits;
  EXPECT_GE(none, static_cast<std::size_t>(code_block)) << bits;
}

std::int64_t bytes_of(std::int64_t elements, std::int64_t bits) {
  return elements / code_block * code_block_bytes(bits);
}

TEST_F(Coded, BytesAreTheCpus) {
  for_types([&]<class T>(std::int64_t offset) {
    const Value x = numbers(dtype_of<T>());
    for (const std::int64_t bits : {8, 4, 1}) {
      const Value blank(DType::u8, {bytes_of(ranks * n, bits)});
      OnDevice in(x, offset), codes(DType::u8, blank.dims(), 4 * offset);
      cuda::encode(in.as<const T>(), codes.as<void>(), ranks * n, codes_of_bits(bits), {}, nullptr);
      EXPECT_EQ(codes.value().bytes(), cpu("encode", {x, blank}, {whole(bits)})[1].bytes()) << bits;
    }
  });
}

TEST_F(Coded, WhatIsLeftOutIsTheCpus) {
  for_types([&]<class T>(std::int64_t offset) {
    constexpr DType type = dtype_of<T>();
    const DType computed = OpShape::statistics(type);
    const Value x = numbers(type), error = random_value(computed, {ranks * n}, 5);
    for (const std::int64_t bits : {8, 1})
      for (const double keeps : {1.0, 0.0}) {
        const Value blank(DType::u8, {bytes_of(ranks * n, bits)}), keep(DType::f64, {}, {keeps});
        OnDevice in(x, offset), codes(DType::u8, blank.dims(), 4 * offset), left(error, offset),
            kept(keep, 0);
        cuda::encode(in.as<const T>(), codes.as<void>(), ranks * n, codes_of_bits(bits),
                     {left.as<cuda::Compute<T>>(), kept.as<const double>()}, nullptr);
        const std::vector<Value> want = cpu("encode_onward", {x, error, keep, blank}, {whole(bits)});
        EXPECT_EQ(codes.value().bytes(), want[3].bytes()) << bits;
        if (keeps == 1.0)
          expect_same_numbers(left.value(), want[1], bits);
        else
          EXPECT_EQ(left.value().bytes(), want[1].bytes()) << bits;
      }
  });
}

TEST_F(Coded, NumbersAndSumsAreTheCpus) {
  for_types([&]<class T>(std::int64_t offset) {
    constexpr DType type = dtype_of<T>();
    for (const std::int64_t bits : {8, 4, 1}) {
      const std::vector<Attr> attrs = {whole(bits), whole(static_cast<int>(type))};
      const Value codes =
          cpu("encode", {numbers(type), Value(DType::u8, {ranks, bytes_of(n, bits)})}, {whole(bits)})[1];
      OnDevice in(codes, 4 * offset), sums(type, {n}, offset), all(type, {ranks * n}, offset);
      cuda::sum_decoded(in.as<void>(), sums.as<T>(), n, ranks, codes_of_bits(bits), nullptr);
      cuda::decode(in.as<void>(), all.as<T>(), ranks * n, codes_of_bits(bits), nullptr);
      expect_same_numbers(sums.value(), cpu("sum_decoded", {codes, Value(type, {n})}, attrs)[1], bits);
      expect_same_numbers(all.value(), cpu("decode", {codes, Value(type, {ranks * n})}, attrs)[1], bits);
    }
  });
}

TEST_F(Coded, BytesAndNumbersOfFp8AreTheCpus) {
  for_types([&]<class T>(std::int64_t offset) {
    constexpr DType type = dtype_of<T>();
    const Value x = numbers(type), blank(DType::u8, {bytes_of(ranks * n, 8)});
    OnDevice in(x, offset), codes(DType::u8, blank.dims(), 4 * offset), all(type, {ranks * n}, offset);
    cuda::encode(in.as<const T>(), codes.as<void>(), ranks * n, Codes::e4m3, {}, nullptr);
    cuda::decode(codes.as<void>(), all.as<T>(), ranks * n, Codes::e4m3, nullptr);
    const Value want = cpu("encode_fp8", {x, blank})[1];
    EXPECT_EQ(codes.value().bytes(), want.bytes());
    const std::vector<Attr> to = {whole(static_cast<int>(type))};
    expect_same_numbers(all.value(), cpu("decode_fp8", {want, Value(type, {ranks * n})}, to)[1], 8);
  });
}

}  // namespace
}  // namespace prun::test::coded_test
