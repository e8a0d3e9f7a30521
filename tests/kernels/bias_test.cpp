// bias_grad against sums in double.
#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(bias_kernels, bias_test)

namespace prun::test::bias_test {
namespace {

using Extents = std::vector<std::int64_t>;

TEST(BiasGrad, AddsTheRowsToWhatIsThere) {
  struct Case {
    Extents dy, dbias;
  };
  const std::vector<Case> cases = {{{1, 1}, {1}},
                                   {{17, 5}, {5}},
                                   {{3, 4, 7}, {7}},
                                   {{2, 9, 3, 5, 11}, {3, 5, 11}},
                                   {{2, 5, 2500}, {2500}}};
  for (const InstructionSet& set : all_kernels())
    for (DType type : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (DType sum : {DType::f64, DType::f32, DType::bf16})
        for (const Case& c : cases) {
          if (!may_sum(type, sum)) continue;
          const Call call{"bias_grad", {random_value(type, c.dy, 1), random_value(sum, c.dbias, 2)}};
          std::vector<double> want = call.operands[1].numbers();
          for (std::size_t i = 0; i < call.operands[0].size(); ++i)
            want[i % want.size()] += call.operands[0][i];
          expect_close(run(set, call)[1], want, sum_tolerance(type, sum), "dbias");
          expect_batch_free(set, call, {0});
          expect_begins(set, call, {1});
        }
}

TEST(BiasGrad, RefusesANarrowerAccumulator) {
  for (const InstructionSet& set : all_kernels()) {
    Call call{"bias_grad", {Value(DType::f64, {2, 3}), Value(DType::f32, {3})}};
    EXPECT_EQ(select_kernel(set, call), nullptr);
    call.operands = {Value(DType::f32, {2, 3}), Value(DType::bf16, {3})};
    EXPECT_EQ(select_kernel(set, call), nullptr);
  }
}

}  // namespace
}  // namespace prun::test::bias_test
