// Products in fp8 on the CPU are products of what the oracle rounds, bit for bit.
#include "tests/support/fp8_oracle.hpp"
#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(linear_kernels)

namespace {

using namespace prun;
using namespace prun::test;

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
