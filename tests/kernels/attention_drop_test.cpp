// attention that drops weights: those that stay are the others' by 1 - p, which ones belong to elements and
// not to layouts.
#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(all_kernels, attention_drop_test)

namespace prun::test::attention_drop_test {
namespace {

constexpr double p = 0.3, seed = 9'007'199'254'000'123.0;
constexpr std::int64_t batch = 2, seq = 300, heads = 2, queries = 2, width = 8;
const std::vector<std::int64_t> of_queries = {batch, seq, heads, queries, width},
                                of_keys = {batch, seq, heads, width}, samples = {7, 5'000'000'123};

// Keys and values of channel `channel` of 8 positions at a time show the weights themselves.
Call call_of(double chance, std::int64_t block, bool causal = true, std::int64_t window = 0) {
  Value v(DType::f64, of_keys);
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t d = 0; d < width && block * width + d < seq; ++d)
        v.set(static_cast<std::size_t>(((b * seq + block * width + d) * heads + h) * width + d), 1);
  return {"attention",
          {random_value(DType::f64, of_queries, 1), random_value(DType::f64, of_keys, 2), v,
           Value(DType::f64, of_queries), Value(DType::f64, {batch, heads, queries, seq}), Value(), Value(),
           integers(DType::i64, {batch}, samples), number(seed)},
          {{.i = causal}, {.i = window}, {.f = 0}, {.f = chance}, {.i = 256}}};
}

// Counts weights that are there and those of them that are dropped; the others must be larger by 1 / (1 - p).
struct Counted {
  std::int64_t all = 0, dropped = 0;

  void add(const Value& whole, const Value& kept) {
    for (std::size_t i = 0; i < whole.size(); ++i) {
      if (whole[i] == 0) continue;
      ++all;
      if (kept[i] == 0)
        ++dropped;
      else
        EXPECT_NEAR(kept[i], whole[i] / (1 - p), 1e-12);
    }
  }
  double share() const { return static_cast<double>(dropped) / static_cast<double>(all); }
};

TEST(AttentionDrop, LeavesWeightsOrLetsThemGrow) {
  for (const InstructionSet& set : all_kernels())
    for (const auto& [causal, window] : {std::pair(true, 0), {true, 40}, {false, 0}, {false, 40}}) {
      Counted counted;
      for (const std::int64_t block : {0, 3, 31, 36}) {
        const std::vector<Value> whole = run(set, call_of(0, block, causal, window)),
                                 kept = run(set, call_of(p, block, causal, window));
        counted.add(whole[3], kept[3]);
        EXPECT_EQ(whole[4].bytes(), kept[4].bytes()) << "sums have all weights";
      }
      EXPECT_GT(counted.all, 2000);
      EXPECT_NEAR(counted.share(), p, 0.03);
    }
}

TEST(AttentionDrop, DependsOnLayerStreamAndSeed) {
  for (const InstructionSet& set : all_kernels()) {
    const Call call = call_of(p, 0);
    Call layer = call, stream = call, seeded = call, sample = call;
    layer.layer = 3;
    stream.attrs[4].i = 260;
    seeded.operands[8] = number(seed + 1);
    sample.operands[7] = integers(DType::i64, {batch}, {8, 9});
    const Value as_is = run_on(set, call, 1)[3];
    for (const Call& other : {layer, stream, seeded, sample})
      EXPECT_NE(run_on(set, other, 1)[3].bytes(), as_is.bytes());
  }
}

// The second head alone, and the samples one by one.
TEST(AttentionDrop, BelongsToElements) {
  for (const InstructionSet& set : all_kernels()) {
    const Call call = call_of(p, 2);
    expect_batch_free(set, call, {0, 1, 2, 3, 4, 7});
    const std::vector<Value> whole = run(set, call);
    Call part = call;
    const auto second = [&](const Value& value, std::int64_t inner) {
      std::vector<std::int64_t> dims = value.dims();
      dims[2] = 1;
      Value one(DType::f64, dims);
      for (std::size_t i = 0; i < one.size(); ++i) {
        const auto n = static_cast<std::int64_t>(i);
        one.set(i, value[static_cast<std::size_t>((n / inner * heads + 1) * inner + n % inner)]);
      }
      return one;
    };
    part.operands[0] = second(call.operands[0], queries * width);
    part.operands[1] = second(call.operands[1], width);
    part.operands[2] = second(call.operands[2], width);
    part.operands[3] = second(call.operands[3], queries * width);
    part.operands[4] = Value(DType::f64, {batch, 1, queries, seq});
    part.starts = {{0, 2, 1}};
    EXPECT_EQ(run(set, part)[3].bytes(), second(whole[3], queries * width).bytes());
  }
}

// Ranks that share out sequences drop the same, also where each has a chunk of front and back.
TEST(AttentionDrop, OfAPartOfThePositionsIsTheSame) {
  for (const InstructionSet& set : all_kernels())
    for (const std::int64_t chunk : {0, 75}) {
      const Call call = call_of(p, 2);
      const Value whole = run(set, call)[3];
      const std::int64_t half = seq / 2, row = heads * queries * width;
      for (const std::int64_t rank : {0, 1}) {
        const SequenceOrder order{chunk, chunk > 0 ? 4 : 0};
        const auto take = [&](const Value& all) {
          Value mine(DType::f64, {batch, half, heads, queries, width});
          for (std::int64_t b = 0; b < batch; ++b)
            for (std::int64_t i = 0; i < half * row; ++i)
              mine.set(static_cast<std::size_t>(b * half * row + i),
                       all[static_cast<std::size_t>((b * seq + order.position(rank * half + i / row)) * row +
                                                    i % row)]);
          return mine;
        };
        Call part = call;
        part.op = "attention_across";
        part.operands[0] = take(call.operands[0]);
        part.operands[3] = Value(DType::f64, {batch, half, heads, queries, width});
        part.operands[4] = Value(DType::f64, {batch, heads, queries, half});
        part.attrs = {{.i = 1}, {.i = 0}, {.i = chunk}, {.i = chunk > 0 ? 4 : 0}, {.i = 0}, {.i = 0},
                      {.f = 0}, {.f = p}, {.i = 256}};
        part.starts = {{0, 1, rank * half}, {3, 1, rank * half}};
        expect_close(run(set, part)[3], take(whole).numbers(), 1e-12, "y");
      }
    }
}

}  // namespace
}  // namespace prun::test::attention_drop_test
