// add, scale and cast: each is one rounding of what double gives.
#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(elementwise_kernels, elementwise_test)

namespace prun::test::elementwise_test {
namespace {

constexpr DType types[] = {DType::f64, DType::f32, DType::bf16, DType::f16};
const std::vector<std::vector<std::int64_t>> shapes = {{1}, {3, 5, 7}, {2, 4, 64}, {3, 4099}};

template <class Body>
void for_cases(Body body) {
  for (const InstructionSet& set : all_kernels())
    for (DType type : types)
      for (const auto& dims : shapes) {
        SCOPED_TRACE(std::string(set.name) + " " + name_of(type) + " last " + std::to_string(dims.back()));
        body(set, type, dims);
      }
}

// The numbers as values of a type, by way of float where the arithmetic is in float.
std::vector<char> rounded(DType type, const std::vector<std::int64_t>& dims, std::vector<double> numbers) {
  for (double& x : numbers) x = type == DType::f64 ? x : static_cast<double>(static_cast<float>(x));
  return Value(type, dims, numbers).bytes();
}

TEST(Add, RoundsOnce) {
  for_cases([](const InstructionSet& set, DType type, const std::vector<std::int64_t>& dims) {
    const Call call{"add", {random_value(type, dims, 1), random_value(type, dims, 2), Value(type, dims)}};
    std::vector<double> y = call.operands[0].numbers();
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += call.operands[1][i];
    EXPECT_EQ(run(set, call)[2].bytes(), rounded(type, dims, y));
    expect_batch_free(set, call, {0, 1, 2});
  });
}

TEST(Scale, RoundsOnce) {
  for_cases([](const InstructionSet& set, DType type, const std::vector<std::int64_t>& dims) {
    const Call call{"scale", {random_value(type, dims, 1), Value(type, dims)}, {{.f = -0.375}}};
    std::vector<double> y = call.operands[0].numbers();
    for (double& value : y) value *= -0.375;
    EXPECT_EQ(run(set, call)[1].bytes(), rounded(type, dims, y));
    expect_batch_free(set, call, {0, 1});
  });
}

TEST(Cast, GivesTheNearestOfTheOtherType) {
  for_cases([](const InstructionSet& set, DType from, const std::vector<std::int64_t>& dims) {
    for (DType to : types) {
      const Call call{"cast", {random_value(from, dims, 1, 100), Value(to, dims)}};
      EXPECT_EQ(run(set, call)[1].bytes(), rounded(to, dims, call.operands[0].numbers()));
    }
  });
}

TEST(Cast, KeepsInfinityAndNaN) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const InstructionSet& set : all_kernels())
    for (DType to : types) {
      const Value x(DType::f32, {2}, {-infinity, std::nan("")});
      const Value y = run(set, {"cast", {x, Value(to, {2})}})[1];
      EXPECT_EQ(y[0], -infinity);
      EXPECT_TRUE(std::isnan(y[1]));
    }
}

TEST(Accumulate, AddsToWhatIsThereOrBeginsIt) {
  for (const InstructionSet& set : all_kernels())
    for (DType type : types)
      for (DType sum : {DType::f64, DType::f32, DType::bf16}) {
        if (!may_sum(type, sum)) continue;
        const Call call{"accumulate", {random_value(type, {9001}, 1), random_value(sum, {9001}, 2)}};
        std::vector<double> want = call.operands[1].numbers();
        for (std::size_t i = 0; i < want.size(); ++i) want[i] += call.operands[0][i];
        expect_close(run(set, call)[1], want, tolerance(sum), "sum");
        expect_begins(set, call, {1});
      }
}

}  // namespace
}  // namespace prun::test::elementwise_test
