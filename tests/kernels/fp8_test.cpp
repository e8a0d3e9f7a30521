// Products in fp8 on the CPU are products of what the oracle rounds, bit for bit.
#include "prun/fp8_squares.hpp"
#include "tests/support/fp8_oracle.hpp"
#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(all_kernels, fp8_test)

namespace prun::test::fp8_test {
namespace {

constexpr std::size_t one = 1, block = 128;

struct Shape {
  std::int64_t rows, in, out;
};

std::vector<Attr> attrs(std::int64_t fp8, std::int64_t from = 0, std::int64_t until = 0) {
  return {Attr{.i = 1}, Attr{.i = fp8}, Attr{.i = from}, Attr{.i = until}};
}

Value result(const InstructionSet& set, const char* op, std::vector<Value> operands, std::int64_t fp8) {
  return run(set, {op, std::move(operands), attrs(fp8)}).back();
}

void expect_same(const Value& actual, const Value& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const bool same = std::isnan(expected[i]) ? std::isnan(actual[i]) : actual[i] == expected[i];
    ASSERT_TRUE(same) << what << "[" << i << "] is " << actual[i] << ", should be " << expected[i];
  }
}

void check(const InstructionSet& set, DType type, const Shape& s) {
  const auto in = static_cast<std::size_t>(s.in), out = static_cast<std::size_t>(s.out);
  const Value x = uneven_numbers(type, s.rows, s.in, 1), weight = uneven_numbers(type, s.out, s.in, 2),
              dy = uneven_numbers(type, s.rows, s.out, 3), bias = Value::random(type, {s.out}, 4);
  const Value x_rows = rounded_to_fp8(x, in, one, block), x_squares = rounded_to_fp8(x, in, block, block),
              squares = rounded_to_fp8(weight, in, block, block),
              dy_rows = rounded_to_fp8(dy, out, one, block), dy_columns = rounded_to_fp8(dy, out, block, one);
  const Value y(type, {s.rows, s.out}), dx(type, {s.rows, s.in});
  const Value sums = Value::random(OpShape::statistics(type), {s.out, s.in}, 5);
  const std::string where = std::string(set.name) + ", " + name_of(type) + ", ";
  expect_same(result(set, "linear", {x, weight, bias, y}, 1),
              result(set, "linear", {x_rows, squares, bias, y}, 0), where + "y");
  expect_same(result(set, "linear_input_grad", {dy, weight, dx}, 1),
              result(set, "linear_input_grad", {dy_rows, squares, dx}, 0), where + "dx");
  expect_same(result(set, "linear_weight_grad", {x, dy, sums}, 1),
              result(set, "linear_weight_grad", {x_squares, dy_columns, sums}, 0), where + "dweight");
}

TEST(Fp8, ProductsAreThoseOfRoundedFactors) {
  for (const InstructionSet& set : all_kernels())
    for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const Shape& shape : {Shape{256, 384, 128}, Shape{3, 7, 5}, Shape{130, 300, 257}})
        check(set, type, shape);
}

// Of layers 1 and 2, say: the others multiply as if they had not been told to.
TEST(Fp8, LayersThatAreLeftOutMultiplyAsWithout) {
  const InstructionSet set = all_kernels().front();
  const Value x = uneven_numbers(DType::f32, 128, 256, 1), weight = uneven_numbers(DType::f32, 128, 256, 2);
  const auto in_layer = [&](std::int64_t layer, const std::vector<Attr>& with) {
    return run(set, {.op = "linear",
                     .operands = {x, weight, Value(), Value(DType::f32, {128, 128})},
                     .attrs = with,
                     .layer = layer})
        .back();
  };
  const Value narrow = in_layer(0, attrs(1)), wide = in_layer(0, attrs(0));
  ASSERT_NE(narrow.bytes(), wide.bytes());
  for (const std::int64_t layer : {0, 1, 2, 3}) {
    EXPECT_EQ(in_layer(layer, attrs(1, 1, 3)).bytes(), (layer == 1 || layer == 2 ? narrow : wide).bytes());
    EXPECT_EQ(in_layer(layer, attrs(1, 2, 0)).bytes(), (layer >= 2 ? narrow : wide).bytes());
  }
}

// What was rounded once stays as it is, so that fewer codes would say no less.
TEST(Fp8, RoundingTwiceChangesNothing) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const Value x = uneven_numbers(type, 256, 256, 7);
    const Value once = rounded_to_fp8(x, 256, block, block);
    expect_same(rounded_to_fp8(once, 256, block, block), once, name_of(type));
    double largest = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      if (std::abs(x[i]) > 1e-3) largest = std::max(largest, std::abs(once[i] / x[i] - 1));
    EXPECT_LE(largest, 1.0 / 16) << name_of(type);
    EXPECT_GE(largest, 1.0 / 20) << name_of(type);
  }
}

// Codes of x [rows, in], by columns as backward is given them, or by rows.
Value codes_of(const InstructionSet& set, const Value& x, bool by_rows = false) {
  const std::int64_t first = x.dims()[by_rows ? 0 : 1], along = x.dims()[by_rows ? 1 : 0];
  const Value blank(DType::u8, {first + (first + 127) / 128, along});
  return run(set, {"encode_fp8_squares", {x, blank}, {Attr{.i = 1}, Attr{.i = by_rows}}}).back();
}

TEST(Fp8, CodesOfSquaresAreWhatTheOracleRoundsTo) {
  for (const InstructionSet& set : all_kernels())
    for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const auto& [rows, in] : {std::pair<std::int64_t, std::int64_t>{256, 384}, {640, 144}}) {
        Value x = uneven_numbers(type, rows, in, 1);
        x.set(5, std::nan(""));
        const auto width = static_cast<std::size_t>(in), height = static_cast<std::size_t>(rows);
        const Value want = rounded_to_fp8(x, width, block, block), codes = codes_of(set, x);
        const Fp8Squares squares{rows, in};
        const auto stride = static_cast<std::size_t>(squares.stride());
        for (std::size_t i = 0; i < x.size(); ++i) {
          const std::size_t row = i / width, column = i % width, square = column / 128 * stride + row / 128;
          float scale = 0;
          std::memcpy(&scale, codes.bytes().data() + x.size() + 4 * square, sizeof scale);
          const auto code = static_cast<unsigned char>(codes.bytes()[column * height + row]);
          const double number = e4m3_number(code) * static_cast<double>(scale);
          ASSERT_TRUE(number == want[i] || (std::isnan(number) && std::isnan(want[i])))
              << set.name << ", " << name_of(type) << ", " << row << ", " << column << ": " << number;
        }
      }
}

TEST(Fp8, AWeightsGradientFromCodesHasTheSameBits) {
  for (const InstructionSet& set : all_kernels())
    for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const auto& [rows, in] : {std::pair<std::int64_t, std::int64_t>{256, 384}, {128, 208}}) {
        const Value x = uneven_numbers(type, rows, in, 1), dy = uneven_numbers(type, rows, 144, 3);
        const Value sums = Value::random(OpShape::statistics(type), {144, in}, 5);
        EXPECT_EQ(result(set, "linear_weight_grad", {codes_of(set, x), dy, sums}, 2).bytes(),
                  result(set, "linear_weight_grad", {x, dy, sums}, 1).bytes())
            << set.name << ", " << name_of(type);
      }
}

TEST(Fp8, ProductsOfAWeightsCodesHaveTheSameBits) {
  for (const InstructionSet& set : all_kernels())
    for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const auto& [in, out] : {std::pair<std::int64_t, std::int64_t>{384, 256}, {208, 144}}) {
        const Value x = uneven_numbers(type, 5, in, 1), dy = uneven_numbers(type, 5, out, 3),
                    bias = Value::random(type, {out}, 4), y(type, {5, out}), dx(type, {5, in});
        Value weight = uneven_numbers(type, out, in, 2);
        weight.set(130 * static_cast<std::size_t>(in) + 3, std::nan(""));
        const std::string where = std::string(set.name) + ", " + name_of(type);
        EXPECT_EQ(result(set, "linear", {x, codes_of(set, weight, true), bias, y}, 2).bytes(),
                  result(set, "linear", {x, weight, bias, y}, 1).bytes())
            << where;
        EXPECT_EQ(result(set, "linear_input_grad", {dy, codes_of(set, weight), dx}, 2).bytes(),
                  result(set, "linear_input_grad", {dy, weight, dx}, 1).bytes())
            << where;
      }
}

TEST(Fp8, ABlockThatIsNotFiniteIsNoNumber) {
  for (const InstructionSet& set : all_kernels())
    for (const double wrong : {std::nan(""), std::numeric_limits<double>::infinity()}) {
      Value x = Value::random(DType::f32, {2, 256}, 1);
      const Value weight = Value::random(DType::f32, {3, 256}, 2);
      x.set(256 + 7, wrong);
      const Value y = result(set, "linear", {x, weight, Value(), Value(DType::f32, {2, 3})}, 1);
      for (std::size_t j = 0; j < 3; ++j) {
        EXPECT_TRUE(std::isfinite(y[j]));
        EXPECT_TRUE(std::isnan(y[3 + j]));
      }
    }
}

}  // namespace
}  // namespace prun::test::fp8_test
