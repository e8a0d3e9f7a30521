// lm_head_logits against sums in double, for every type and instruction set.
#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(lm_head_logits_kernels, lm_head_logits_test)

namespace prun::test::lm_head_logits_test {
namespace {

constexpr std::int64_t batch = 4, seq = 5, width = 37, vocab = 203;

// The last position that counts: 2 of row 0, 4 of row 1, none of row 2, 0 of row 3.
Value targets() {
  Value value(DType::i32, {batch, seq});
  for (std::size_t i = 0; i < value.size(); ++i) value.set(i, -1);
  for (const std::size_t at :
       {std::size_t{1}, std::size_t{2}, seq + std::size_t{4}, 3 * seq + std::size_t{0}})
    value.set(at, 7);
  return value;
}

TEST(LmHeadLogits, AreThoseOfThePositionAskedFor) {
  const std::int64_t positions[] = {2, 4, -1, 0};
  for (const InstructionSet& set : all_kernels())
    for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
      const Value x = Value::random(type, {batch, seq, width}, 1),
                  weight = Value::random(type, {vocab, width}, 2);
      const Value logits = run(
          set,
          {"lm_head_logits", {x, weight, targets(), Value(OpShape::statistics(type), {batch, vocab})}})[3];
      for (std::int64_t b = 0; b < batch; ++b)
        for (std::int64_t v = 0; v < vocab; ++v) {
          double want = 0;
          for (std::int64_t k = 0; positions[b] >= 0 && k < width; ++k)
            want += x[static_cast<std::size_t>((b * seq + positions[b]) * width + k)] *
                    weight[static_cast<std::size_t>(v * width + k)];
          EXPECT_NEAR(logits[static_cast<std::size_t>(b * vocab + v)], want,
                      type == DType::f64 ? 1e-13 : 1e-5)
              << name_of(type) << " " << b << " " << v;
        }
    }
}

}  // namespace
}  // namespace prun::test::lm_head_logits_test
