// embedding, add_position and the tables' gradients, whole and as shards of the vocabulary or the sequence.
#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(embedding_kernels, embedding_test)

namespace prun::test::embedding_test {
namespace {

using Extents = std::vector<std::int64_t>;
constexpr std::int64_t batch = 3, seq = 7, vocabulary = 11;

// Tokens of [batch, seq]; most rows are met several times.
Value tokens() {
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = 0; i < batch * seq; ++i) numbers.push_back(i * i % vocabulary);
  return integers(DType::i32, {batch, seq}, numbers);
}

template <class Body>
void for_cases(Body body) {
  for (const InstructionSet& set : all_kernels())
    for (DType type : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (std::int64_t width : {1, 7, 64, 200}) {
        SCOPED_TRACE(std::string(set.name) + " " + name_of(type) + " width " + std::to_string(width));
        body(set, type, width);
      }
}

// The accumulators that values of a type may have.
std::vector<DType> sums_of(DType type) {
  if (type == DType::f64) return {DType::f64};
  if (type == DType::f32 || type == DType::f16) return {DType::f64, DType::f32};
  return {DType::f64, DType::f32, DType::bf16};
}

TEST(Embedding, LooksRowsUp) {
  for_cases([](const InstructionSet& set, DType type, std::int64_t width) {
    const Call call{"embedding",
                    {tokens(), random_value(type, {vocabulary, width}, 1), Value(type, {batch, seq, width})}};
    const Value y = run(set, call)[2];
    for (std::size_t i = 0; i < y.size(); ++i) {
      const auto w = static_cast<std::size_t>(width);
      const auto row = static_cast<std::size_t>(call.operands[0][i / w]);
      ASSERT_EQ(y[i], call.operands[1][row * w + i % w]);
    }
    expect_batch_free(set, call, {0, 2});
  });
}

TEST(Embedding, ShardsOfTheTableAddUpToTheWhole) {
  for_cases([](const InstructionSet& set, DType type, std::int64_t width) {
    const Value table = random_value(type, {vocabulary, width}, 1);
    const Value whole = run(set, {"embedding", {tokens(), table, Value(type, {batch, seq, width})}})[2];
    std::vector<double> sum(whole.size());
    for (const auto& [first, rows] : {std::pair<std::int64_t, std::int64_t>{0, 4}, {4, 7}}) {
      Value shard(type, {rows, width});
      for (std::size_t i = 0; i < shard.size(); ++i)
        shard.set(i, table[static_cast<std::size_t>(first * width) + i]);
      Value poisoned(type, {batch, seq, width});
      for (std::size_t i = 0; i < poisoned.size(); ++i) poisoned.set(i, 99);
      const Value part = run(set, {"embedding", {tokens(), shard, poisoned}, {}, {{1, 0, first}}})[2];
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    EXPECT_EQ(sum, whole.numbers());
  });
}

TEST(Embedding, GradientAddsRowsThatMeet) {
  for_cases([](const InstructionSet& set, DType type, std::int64_t width) {
    for (DType sum : sums_of(type))
      for (const auto& [first, padding] :
           {std::pair<std::int64_t, std::int64_t>{0, -1}, {0, 5}, {4, -1}, {4, 5}}) {
        const std::int64_t rows = first ? 5 : vocabulary;
        const Call call{
            "embedding_weight_grad",
            {tokens(), random_value(type, {batch, seq, width}, 2), random_value(sum, {rows, width}, 3)},
            {Attr{.i = padding}},
            {{2, 0, first}}};
        std::vector<double> want = call.operands[2].numbers();
        for (std::size_t i = 0; i < call.operands[1].size(); ++i) {
          const auto w = static_cast<std::size_t>(width);
          const auto row = static_cast<std::int64_t>(call.operands[0][i / w]) - first;
          if (row >= 0 && row < rows && row + first != padding)
            want[static_cast<std::size_t>(row) * w + i % w] += call.operands[1][i];
        }
        expect_close(run(set, call)[2], want, sum == DType::bf16 ? 0.1 : tolerance(sum), "dtable");
        expect_batch_free(set, call, {0, 1});
      }
  });
}

TEST(AddPosition, AddsTheRowOfEachPosition) {
  for_cases([](const InstructionSet& set, DType type, std::int64_t width) {
    const Extents dims = {batch, seq, width};
    for (std::int64_t first : {0, 5}) {
      const Call call{
          "add_position",
          {random_value(type, dims, 1), random_value(type, {seq + 5, width}, 2), Value(type, dims)},
          {},
          {{0, 1, first}}};
      std::vector<double> want = call.operands[0].numbers();
      for (std::size_t i = 0; i < want.size(); ++i) {
        const auto w = static_cast<std::size_t>(width);
        const std::size_t position = i / w % seq + static_cast<std::size_t>(first);
        want[i] += call.operands[1][position * w + i % w];
      }
      expect_close(run(set, call)[2], want, tolerance(type), "y");
      expect_batch_free(set, call, {0, 2});
    }
  });
}

TEST(AddPosition, GradientSumsTheBatch) {
  for_cases([](const InstructionSet& set, DType type, std::int64_t width) {
    for (DType sum : sums_of(type))
      for (std::int64_t first : {0, 5}) {
        const Call call{
            "position_weight_grad",
            {random_value(type, {batch, seq, width}, 1), Value(), random_value(sum, {seq + 5, width}, 2)},
            {},
            {{0, 1, first}}};
        std::vector<double> want = call.operands[2].numbers();
        for (std::size_t i = 0; i < call.operands[0].size(); ++i) {
          const auto w = static_cast<std::size_t>(width);
          const std::size_t position = i / w % seq + static_cast<std::size_t>(first);
          want[position * w + i % w] += call.operands[0][i];
        }
        expect_close(run(set, call)[2], want, sum == DType::bf16 ? 0.1 : tolerance(sum), "dtable");
        expect_batch_free(set, call, {0});
        expect_begins(set, call, {2});
      }
  });
}

}  // namespace
}  // namespace prun::test::embedding_test
