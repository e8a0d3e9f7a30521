// halt_beyond: halts where any layer needed more than was planned for, and leaves what was halted already.
#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(bound_kernels, bound_test)

namespace prun::test::bound_test {
namespace {

using prun::DType;
using prun::test::InstructionSet;
using prun::test::number;
using prun::test::run;
using prun::test::Value;

TEST(HaltBeyond, LooksAtEachLayer) {
  for (const InstructionSet& set : all_kernels()) {
    const auto halt = [&](const std::vector<double>& needed, double before) {
      return run(set, {"halt_beyond", {Value(DType::f64, {2, 2}, needed), number(before)}})[1][0];
    };
    EXPECT_EQ(halt({1, 1, 0, 0}, 0), 0);
    EXPECT_EQ(halt({1, 1, 1.5, 1.25}, 0), 1);
    EXPECT_EQ(halt({2, 1, 0, 0}, 0), 1);
    EXPECT_EQ(halt({0, 1, 0, 1}, 1), 1);
  }
}

}  // namespace
}  // namespace prun::test::bound_test
