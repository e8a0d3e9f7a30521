// What becomes of numbers in fp8 is counted as the oracle counts it, in the steps that count.
#include "prun/fp8_blocks.hpp"
#include "tests/support/fp8_oracle.hpp"
#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(all_kernels, fp8_counts_test)

namespace prun::test::fp8_counts_test {
namespace {

struct Kind {
  Fp8Blocks blocks;
  std::size_t tall, wide;
};
constexpr Kind kinds[] = {
    {Fp8Blocks::rows, 1, 128}, {Fp8Blocks::columns, 128, 1}, {Fp8Blocks::squares, 128, 128}};

std::vector<Attr> attrs(Fp8Blocks blocks, std::int64_t place, std::int64_t from = 0, std::int64_t until = 0) {
  return {Attr{.i = 1},     Attr{.i = 1}, Attr{.i = from}, Attr{.i = until}, Attr{.i = std::int64_t(blocks)},
          Attr{.i = place}, Attr{.i = -1}};
}

Value run_count(const InstructionSet& set, const char* op, const Value& x, double on, const Value& into,
                std::vector<Attr> with, std::int64_t layer = 0) {
  return run(set, {.op = op,
                   .operands = {x, Value(DType::f64, {}, {on}), into},
                   .attrs = std::move(with),
                   .layer = layer})
      .back();
}

TEST(Fp8Counts, AreWhatTheOracleFinds) {
  for (const InstructionSet& set : all_kernels())
    for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const Kind& kind : kinds)
        for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{256, 384}, {144, 208}}) {
          Value x = steep_numbers(type, rows, columns, 1);
          x.set(5, std::nan(""));
          const Fp8Found found = found_in_fp8(x, static_cast<std::size_t>(columns), kind.tall, kind.wide);
          const Value none(DType::f64, {2, 3}, std::vector<double>(6, 0));
          const auto of = [&](const char* op) {
            return run_count(set, op, x, 1, none, attrs(kind.blocks, 0), 1).numbers();
          };
          const auto expected = [](const std::vector<double>& row) {
            return std::vector<double>{0, 0, 0, row[0], row[1], row[2]};
          };
          EXPECT_GT(found.counts[1], 0);
          EXPECT_GT(found.counts[2], 0);
          EXPECT_EQ(of("count_fp8_codes"), expected(found.counts)) << set.name << name_of(type);
          EXPECT_EQ(of("peak_fp8_scales"), expected(found.peaks)) << set.name << name_of(type);
        }
}

TEST(Fp8Counts, AddUpAndRise) {
  const InstructionSet set = all_kernels().front();
  const Value x = steep_numbers(DType::f32, 128, 128, 1), y = steep_numbers(DType::f32, 128, 128, 2);
  const Value none(DType::f64, {3, 3}, std::vector<double>(9, 0));
  const auto both = [&](const char* op) {
    const std::vector<Attr> with = attrs(Fp8Blocks::rows, 2);
    return run_count(set, op, y, 1, run_count(set, op, x, 1, none, with), with).numbers();
  };
  const Fp8Found a = found_in_fp8(x, 128, 1, 128), b = found_in_fp8(y, 128, 1, 128);
  for (std::size_t k = 0; k < 3; ++k) {
    EXPECT_EQ(both("count_fp8_codes")[6 + k], a.counts[k] + b.counts[k]);
    EXPECT_EQ(both("peak_fp8_scales")[6 + k], std::max(a.peaks[k], b.peaks[k]));
  }
}

TEST(Fp8Counts, NothingIsCountedInOtherStepsAndLayers) {
  const InstructionSet set = all_kernels().front();
  const Value x = steep_numbers(DType::f32, 128, 128, 1),
              before(DType::f64, {4, 3}, std::vector<double>(12, 7));
  for (const char* op : {"count_fp8_codes", "peak_fp8_scales"}) {
    EXPECT_EQ(run_count(set, op, x, 0, before, attrs(Fp8Blocks::rows, 0)).numbers(), before.numbers());
    for (const std::int64_t layer : {0, 3})
      EXPECT_EQ(run_count(set, op, x, 1, before, attrs(Fp8Blocks::rows, 0, 1, 3), layer).numbers(),
                before.numbers());
    EXPECT_NE(run_count(set, op, x, 1, before, attrs(Fp8Blocks::rows, 0, 1, 3), 2).numbers(),
              before.numbers());
  }
}

}  // namespace
}  // namespace prun::test::fp8_counts_test
