// What a rank takes of a step's samples: its own rows and its own positions, no byte beyond them, and the
// count of the targets that count.
#include "train/loop/samples.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "prun/error.hpp"

namespace prun::batches_test {
namespace {

constexpr std::int64_t seq = 6, samples = 100;
constexpr std::int32_t untouched = -77;

// Token 10 s + p stands at position p of sample s; the last position has no target that counts.
class Numbered final : public DataInterface {
 public:
  Status open(std::int64_t, DataInfo*) noexcept override { return {}; }
  Status read(std::int64_t index, std::int32_t* tokens, std::int32_t* targets) noexcept override {
    for (std::int64_t p = 0; p < seq; ++p) {
      tokens[p] = static_cast<std::int32_t>(10 * index + p);
      targets[p] = p + 1 < seq ? tokens[p] + 1 : -1;
    }
    return {};
  }
  Status roles(std::int64_t, std::uint8_t*) noexcept override { return {}; }
};

struct Part {
  std::vector<std::int32_t> tokens, targets;
  std::vector<std::int64_t> samples;
  std::int64_t counted = 0;
};

// One microbatch; buffers have a place more than the part takes.
Part read_part(const BatchShape& shape, std::int64_t first = 0, std::int64_t vocab = 1000,
               std::int64_t global = 4) {
  SampleSet set{"data", std::make_shared<Numbered>(), {}, 1, 0, samples};
  const Samples numbered({set}, false, 1, seq, vocab);
  BatchReader reader(numbered, shape);
  const auto size = static_cast<std::size_t>(shape.micro * shape.positions + 1);
  Part part{std::vector(size, untouched), std::vector(size, untouched),
            std::vector<std::int64_t>(static_cast<std::size_t>(shape.micro + 1), untouched), 0};
  reader.start(first, global, {{part.tokens.data(), part.targets.data(), part.samples.data()}});
  part.counted = reader.finish();
  return part;
}

BatchShape shape_of(std::int64_t first_row, std::int64_t first_position, std::int64_t positions) {
  return {.rows = 4,
          .first_row = first_row,
          .micro = 2,
          .first_position = first_position,
          .positions = positions};
}

TEST(Batches, ARankTakesItsRowsWhole) {
  const Part part = read_part(shape_of(2, 0, seq), 4);
  EXPECT_EQ(part.tokens,
            (std::vector<std::int32_t>{60, 61, 62, 63, 64, 65, 70, 71, 72, 73, 74, 75, untouched}));
  EXPECT_EQ(part.targets,
            (std::vector<std::int32_t>{61, 62, 63, 64, 65, -1, 71, 72, 73, 74, 75, -1, untouched}));
  EXPECT_EQ(part.samples, (std::vector<std::int64_t>{6, 7, untouched}));
  EXPECT_EQ(part.counted, 10);
}

TEST(Batches, ARankTakesItsPositionsAndCountsTheirTargets) {
  const Part front = read_part(shape_of(0, 0, 3)), back = read_part(shape_of(0, 3, 3));
  EXPECT_EQ(front.tokens, (std::vector<std::int32_t>{0, 1, 2, 10, 11, 12, untouched}));
  EXPECT_EQ(back.tokens, (std::vector<std::int32_t>{3, 4, 5, 13, 14, 15, untouched}));
  EXPECT_EQ(back.targets, (std::vector<std::int32_t>{4, 5, -1, 14, 15, -1, untouched}));
  EXPECT_EQ(front.samples, back.samples);
  EXPECT_EQ(front.counted, 6);
  EXPECT_EQ(back.counted, 4);
}

TEST(Batches, RowsBeyondTheBatchArePadding) {
  const Part part = read_part(shape_of(2, 3, 3), 0, 1000, 3);
  EXPECT_EQ(part.tokens, (std::vector<std::int32_t>{23, 24, 25, 0, 0, 0, untouched}));
  EXPECT_EQ(part.targets, (std::vector<std::int32_t>{24, 25, -1, -1, -1, -1, untouched}));
  EXPECT_EQ(part.counted, 2);
}

TEST(Batches, ATokenBeyondTheVocabularyIsNamedWhereverItStands) {
  try {
    read_part(shape_of(0, 0, 3), 0, 15);
    FAIL() << "it was taken";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "data: sample 1, position 4 holds token 15, outside of model.vocab = 15");
  }
}

}  // namespace
}  // namespace prun::batches_test
