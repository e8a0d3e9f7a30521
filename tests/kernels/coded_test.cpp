#include <cmath>
#include <cstring>
#include <limits>

#include "prun/block_codes.hpp"
#include "tests/support/fp8_oracle.hpp"
#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(coded_kernels, coded_test)

namespace prun::test::coded_test {
namespace {

constexpr std::int64_t blocks = 9, n = blocks * code_block;

Attr whole(std::int64_t i) {
  Attr attr;
  attr.i = i;
  return attr;
}

// Blocks of quite different sizes.
Value numbers(DType type, unsigned seed, std::int64_t parts = 1) {
  Value x = random_value(type, {parts * n}, seed);
  for (std::size_t i = 0; i < x.size(); ++i)
    x.set(i, x[i] * std::pow(4.0, static_cast<double>(i / code_block % blocks) - 5));
  return x;
}

Value encoded(const InstructionSet& set, const Value& x, std::int64_t bits) {
  const auto bytes = static_cast<std::int64_t>(x.size()) / code_block * code_block_bytes(bits);
  return run(set, {"encode", {x, Value(DType::u8, {bytes})}, {whole(bits)}})[1];
}

Value decoded(const InstructionSet& set, const Value& codes, DType type, std::int64_t bits) {
  const auto elements = static_cast<std::int64_t>(codes.size()) / code_block_bytes(bits) * code_block;
  return run(set,
             {"decode", {codes, Value(type, {elements})}, {whole(bits), whole(static_cast<int>(type))}})[1];
}

// Summands of so many ranks, one behind the other.
Value by_rank(const Value& codes, std::int64_t ranks) {
  Value shaped(DType::u8, {ranks, static_cast<std::int64_t>(codes.size()) / ranks});
  std::memcpy(shaped.tensor().data, codes.bytes().data(), codes.size());
  return shaped;
}

float scale_of(const Value& codes, std::size_t block, std::int64_t bits) {
  float scale = 0;
  std::memcpy(&scale, codes.bytes().data() + block * static_cast<std::size_t>(code_block_bytes(bits)),
              sizeof scale);
  return scale;
}

// Half a scale, and what is lost where the number itself is rounded to its type.
TEST(Codes, AreWithinHalfAScaleOfTheNumber) {
  for (const InstructionSet& set : all_kernels())
    for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const std::int64_t bits : {8, 4}) {
        const Value x = numbers(type, 3), codes = encoded(set, x, bits), y = decoded(set, codes, type, bits);
        for (std::size_t i = 0; i < x.size(); ++i) {
          const double scale = scale_of(codes, i / code_block, bits);
          EXPECT_LE(std::abs(y[i] - x[i]), scale / 2 * (1 + 1e-5) + tolerance(type) * std::abs(x[i])) << i;
        }
      }
}

// The largest magnitude of a block is what its largest code stands for.
TEST(Codes, HaveTheScaleOfTheBlocksLargest) {
  for (const InstructionSet& set : all_kernels())
    for (const std::int64_t bits : {8, 4}) {
      const Value x = numbers(DType::f32, 5), codes = encoded(set, x, bits);
      for (std::size_t b = 0; b < blocks; ++b) {
        double largest = 0;
        for (std::size_t i = 0; i < code_block; ++i)
          largest = std::max(largest, std::abs(x[b * code_block + i]));
        EXPECT_EQ(scale_of(codes, b, bits),
                  static_cast<float>(largest) / static_cast<float>(largest_code(bits)));
      }
    }
}

// Whole numbers up to the largest code are their own codes.
TEST(Codes, OfWholeNumbersAreExact) {
  for (const InstructionSet& set : all_kernels())
    for (const std::int64_t bits : {8, 4}) {
      const int most = largest_code(bits);
      Value x(DType::f32, {code_block});
      for (std::size_t i = 0; i < x.size(); ++i) x.set(i, static_cast<int>(i) % (2 * most + 1) - most);
      EXPECT_EQ(decoded(set, encoded(set, x, bits), DType::f32, bits).numbers(), x.numbers());
    }
}

TEST(Codes, OfWhatIsNotFiniteAreNaNThroughoutTheBlock) {
  for (const InstructionSet& set : all_kernels())
    for (const double odd : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
      Value x = numbers(DType::f32, 7);
      x.set(code_block + 17, odd);
      const Value y = decoded(set, encoded(set, x, 8), DType::f32, 8);
      for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / code_block == 1) << i;
    }
}

TEST(Codes, OfZerosAndOfTheLeastNumbersAreFinite) {
  for (const InstructionSet& set : all_kernels())
    for (const double least : {0.0, static_cast<double>(std::numeric_limits<float>::denorm_min()), 1e-40}) {
      const Value x(DType::f32, {code_block}, std::vector<double>(code_block, least));
      const Value y = decoded(set, encoded(set, x, 8), DType::f32, 8);
      for (std::size_t i = 0; i < y.size(); ++i) EXPECT_LE(std::abs(y[i] - x[i]), least) << least;
    }
}

// Off by half of all ranks' scales together at most, beside what adding up rounds.
TEST(Codes, SumIsWithinHalfOfAllScalesTogether) {
  constexpr std::int64_t ranks = 4;
  for (const InstructionSet& set : all_kernels())
    for (const std::int64_t bits : {8, 4}) {
      const Value x = numbers(DType::f32, 13, ranks), codes = encoded(set, x, bits);
      const Value sum = run(set, {"sum_decoded",
                                  {by_rank(codes, ranks), Value(DType::f32, {n})},
                                  {whole(bits), whole(static_cast<int>(DType::f32))}})[1];
      for (std::size_t i = 0; i < n; ++i) {
        double exact = 0, scales = 0;
        for (std::size_t r = 0; r < ranks; ++r) {
          exact += x[r * n + i];
          scales += static_cast<double>(scale_of(codes, (r * n + i) / code_block, bits));
        }
        EXPECT_LE(std::abs(sum[i] - exact), scales / 2 * (1 + 1e-4)) << i;
      }
    }
}

// In fp32, in the order of the ranks, each number rounded before it is added.
TEST(Codes, SumIsThatOfTheDecodedInOrder) {
  constexpr std::int64_t ranks = 5;
  for (const InstructionSet& set : all_kernels())
    for (const DType type : {DType::f64, DType::f32, DType::bf16})
      for (const std::int64_t bits : {8, 4}) {
        const DType computed = OpShape::statistics(type);
        const Value codes = encoded(set, numbers(type, 11, ranks), bits),
                    apart = decoded(set, codes, computed, bits);
        const Value sum = run(set, {"sum_decoded",
                                    {by_rank(codes, ranks), Value(type, {n})},
                                    {whole(bits), whole(static_cast<int>(type))}})[1];
        Value want(type, {n});
        for (std::size_t i = 0; i < n; ++i) {
          double wide = apart[i];
          auto narrow = static_cast<float>(apart[i]);
          for (std::size_t r = 1; r < ranks; ++r)
            wide += apart[r * n + i], narrow += static_cast<float>(apart[r * n + i]);
          want.set(i, computed == DType::f64 ? wide : static_cast<double>(narrow));
        }
        EXPECT_EQ(sum.numbers(), want.numbers()) << name_of(type) << " " << bits;
      }
}

// ---------------------------------------------------------------- codes in e4m3

Value encoded_fp8(const InstructionSet& set, const Value& x) {
  const auto bytes = static_cast<std::int64_t>(x.size()) / code_block * code_block_bytes(8);
  return run(set, {"encode_fp8", {x, Value(DType::u8, {bytes})}})[1];
}

Value decoded_fp8(const InstructionSet& set, const Value& codes, DType type) {
  const auto elements = static_cast<std::int64_t>(codes.size()) / code_block_bytes(8) * code_block;
  return run(set, {"decode_fp8", {codes, Value(type, {elements})}, {whole(static_cast<int>(type))}})[1];
}

// What products in fp8 round a row's blocks to.
TEST(Fp8Codes, AreTheNearestInE4m3OfThePowerOfTwoThatFits) {
  for (const InstructionSet& set : all_kernels())
    for (const DType type : {DType::f64, DType::f32, DType::bf16}) {
      const Value x = numbers(type, 17), y = decoded_fp8(set, encoded_fp8(set, x), type);
      EXPECT_EQ(y.numbers(), rounded_to_fp8(x, code_block, 1, code_block).numbers());
    }
}

TEST(Fp8Codes, AreOffByASixteenthOfTheNumberOrA1024thOfTheScale) {
  for (const InstructionSet& set : all_kernels()) {
    const Value x = numbers(DType::f32, 19), codes = encoded_fp8(set, x),
                y = decoded_fp8(set, codes, DType::f32);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double scale = scale_of(codes, i / code_block, 8);
      EXPECT_LE(std::abs(y[i] - x[i]), std::max(std::abs(x[i]) / 16, scale / 1024)) << i;
    }
  }
}

// Each code stands for what the list of e4m3's numbers says, and is what that number becomes again.
TEST(Fp8Codes, StandForWhatE4m3HasAndComeBack) {
  for (const InstructionSet& set : all_kernels())
    for (const int half : {0, 0x80}) {
      Value codes(DType::u8, {code_block_bytes(8)});
      const float scale = 1;
      std::memcpy(codes.tensor().data, &scale, sizeof scale);
      auto* const code = static_cast<unsigned char*>(codes.tensor().data) + sizeof scale;
      // The largest comes twice, in the place of NaN; there is one zero.
      for (int c = 0; c < 128; ++c) code[c] = static_cast<unsigned char>(half | (c == 127 ? 126 : c));
      if (half != 0) code[0] = 0;
      for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
        const Value y = decoded_fp8(set, codes, type);
        for (int c = 0; c < 128; ++c) EXPECT_EQ(y[static_cast<std::size_t>(c)], e4m3_number(code[c])) << c;
        EXPECT_EQ(encoded_fp8(set, y).bytes(), codes.bytes());
      }
    }
}

TEST(Fp8Codes, OfWhatIsNotFiniteAreNaNThroughoutTheBlockAndOfZerosZeros) {
  for (const InstructionSet& set : all_kernels())
    for (const double odd : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
      Value x = numbers(DType::f32, 7);
      x.set(code_block + 17, odd);
      for (std::size_t i = 0; i < code_block; ++i) x.set(i, 0);
      const Value y = decoded_fp8(set, encoded_fp8(set, x), DType::f32);
      for (std::size_t i = 0; i < y.size(); ++i) {
        EXPECT_EQ(std::isnan(y[i]), i / code_block == 1) << i;
        EXPECT_TRUE(i >= code_block || y[i] == 0) << i;
      }
    }
}

}  // namespace
}  // namespace prun::test::coded_test
