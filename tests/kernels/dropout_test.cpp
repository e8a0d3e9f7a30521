// dropout: the draws are those of the published generator, and belong to elements, not to layouts.
#include "base/random.hpp"
#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(dropout_kernels, dropout_test)

namespace prun::test::dropout_test {
namespace {

using Extents = std::vector<std::int64_t>;
constexpr DType types[] = {DType::f64, DType::f32, DType::bf16, DType::f16};
constexpr double seed = 9'007'199'254'000'123.0;  // uses both words

struct Place {
  std::int64_t sample, position, channel, layer, stream;
};

bool stays(const Place& at, double p) {
  const auto number = static_cast<std::uint64_t>(seed), sample = static_cast<std::uint64_t>(at.sample);
  const auto low = [](auto x) { return static_cast<std::uint32_t>(x); };
  const PhiloxCounter words =
      philox4x32({low(at.channel / 4), low(at.position), low(sample), low(at.layer << 16 | at.stream)},
                 {low(number), low(number >> 32) ^ low(sample >> 32)}, 7);
  return static_cast<double>(unit_float(words[static_cast<std::size_t>(at.channel % 4)])) >= p;
}

Call dropout_call(const Value& x, const std::vector<std::int64_t>& samples, double p,
                  std::int64_t stream = 0) {
  return {"dropout",
          {x, integers(DType::i64, {x.dims()[0]}, samples), number(seed), Value(x)},
          {{.f = p}, {.i = stream}}};
}

TEST(Dropout, DrawsByElement) {
  const std::vector<std::int64_t> samples = {7, 5'000'000'123, 0};
  for (const InstructionSet& set : all_kernels())
    for (DType type : types)
      for (std::int64_t width : {1, 5, 64, 131, 600})
        for (std::int64_t first : {0, 8, 3}) {
          Call call = dropout_call(random_value(type, {3, 4, width}, 1), samples, 0.3, 2);
          call.starts = {{0, 1, 10}, {0, 2, first}};
          call.layer = 5;
          const Value &x = call.operands[0], y = run(set, call)[3];
          std::vector<double> want = x.numbers();
          for (std::size_t i = 0; i < want.size(); ++i) {
            const auto n = static_cast<std::int64_t>(i);
            const Place at{samples[i / static_cast<std::size_t>(4 * width)], 10 + n / width % 4,
                           first + n % width, 5, 2};
            want[i] = stays(at, 0.3) ? want[i] / 0.7 : 0.0;
          }
          expect_close(y, want, tolerance(type), "y");
          expect_batch_free(set, call, {0, 1, 3});
        }
}

TEST(Dropout, DropsTheShareAskedFor) {
  for (const InstructionSet& set : all_kernels())
    for (double p : {0.0, 0.1, 0.5, 0.9}) {
      Value ones(DType::f32, {1, 200, 512});
      for (std::size_t i = 0; i < ones.size(); ++i) ones.set(i, 1);
      const Value y = run(set, dropout_call(ones, {3}, p))[3];
      double dropped = 0, sum = 0;
      for (std::size_t i = 0; i < y.size(); ++i) dropped += y[i] == 0, sum += y[i];
      const double n = static_cast<double>(y.size());
      EXPECT_NEAR(dropped / n, p, 5 * std::sqrt(p * (1 - p) / n) + 1e-12);
      EXPECT_NEAR(sum / n, 1, 0.02);
    }
}

TEST(Dropout, LayersAndStreamsAndSamplesDiffer) {
  for (const InstructionSet& set : all_kernels()) {
    Value ones(DType::f32, {1, 8, 64});
    for (std::size_t i = 0; i < ones.size(); ++i) ones.set(i, 1);
    const Call base = dropout_call(ones, {3}, 0.5);
    Call layer = base;
    layer.layer = 1;
    const auto bytes = run(set, base)[3].bytes();
    EXPECT_EQ(run(set, base)[3].bytes(), bytes);
    EXPECT_NE(run(set, layer)[3].bytes(), bytes);
    EXPECT_NE(run(set, dropout_call(ones, {3}, 0.5, 1))[3].bytes(), bytes);
    EXPECT_NE(run(set, dropout_call(ones, {4}, 0.5))[3].bytes(), bytes);
  }
}

}  // namespace
}  // namespace prun::test::dropout_test
