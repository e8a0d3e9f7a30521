// split_heads and join_heads: every number where it belongs, bit for bit.
#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(heads_kernels, heads_test)

namespace prun::test::heads_test {
namespace {

using Extents = std::vector<std::int64_t>;

// The element of x[.., packed, head_dim] that element i of q, or of the key or value in slot `slot`, is.
std::size_t packed_index(const Extents& x, std::size_t i, std::int64_t first, std::int64_t slots) {
  const auto width = static_cast<std::size_t>(x[4]), each = static_cast<std::size_t>(slots) * width;
  return i / each * static_cast<std::size_t>(x[3]) * width + static_cast<std::size_t>(first) * width +
         i % each;
}

TEST(Heads, SplitPutsEveryNumberInItsPlaceAndJoinTakesItBack) {
  for (const InstructionSet& set : all_kernels())
    for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const Extents& d :
           {Extents{1, 1, 1, 3, 1}, {2, 5, 3, 4, 6}, {3, 40, 2, 3, 64}, {2, 3, 1, 10, 256}}) {
        SCOPED_TRACE(std::string(set.name) + " " + name_of(type) + " width " + std::to_string(d[4]));
        const Extents queries = {d[0], d[1], d[2], d[3] - 2, d[4]}, keys = {d[0], d[1], d[2], d[4]};
        const Call call{
            "split_heads",
            {random_value(type, d, 1), Value(type, queries), Value(type, keys), Value(type, keys)}};
        const std::vector<Value> split = run(set, call);
        expect_batch_free(set, call, {0, 1, 2, 3});
        for (std::size_t i = 0; i < split[1].size(); ++i)
          ASSERT_EQ(split[1][i], split[0][packed_index(d, i, 0, d[3] - 2)]) << "q";
        for (std::size_t i = 0; i < split[2].size(); ++i) {
          ASSERT_EQ(split[2][i], split[0][packed_index(d, i, d[3] - 2, 1)]) << "k";
          ASSERT_EQ(split[3][i], split[0][packed_index(d, i, d[3] - 1, 1)]) << "v";
        }
        const Call back{"join_heads", {split[1], split[2], split[3], Value(type, d)}};
        EXPECT_EQ(run(set, back)[3].bytes(), split[0].bytes());
        expect_batch_free(set, back, {0, 1, 2, 3});
      }
}

}  // namespace
}  // namespace prun::test::heads_test
