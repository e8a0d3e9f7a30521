// cap_choices and count_dropped: which choices of an expert are dropped, beside a loop that picks those kept
// one after the other.
#include <cmath>
#include <numeric>
#include <random>

#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(capacity_kernels, capacity_test)

namespace prun::test::capacity_test {
namespace {

using prun::Attr;
using prun::DType;
using prun::test::Call;
using prun::test::expect_batch_free;
using prun::test::InstructionSet;
using prun::test::integers;
using prun::test::random_value;
using prun::test::run;
using prun::test::Value;

using Numbers = std::vector<double>;

struct Case {
  std::int64_t sequences, positions, choices, experts, most;

  std::vector<std::int64_t> dims() const { return {sequences, positions, choices}; }
  std::vector<Attr> attrs() const { return {Attr{.i = most}, Attr{.i = experts}}; }
};

const Case cases[] = {{1, 12, 2, 4, 3}, {3, 40, 3, 8, 7},   {2, 17, 1, 3, 1},
                      {4, 9, 4, 5, 9},  {2, 64, 8, 16, 20}, {2, 10, 2, 4, 0}};

// Each position chooses experts that differ, the first of them more often.
Value drawn_choices(const Case& c, std::uint32_t seed) {
  std::vector<std::int64_t> index;
  std::mt19937 random(seed);
  for (std::int64_t i = 0; i < c.sequences * c.positions; ++i) {
    std::vector<std::int64_t> left(static_cast<std::size_t>(c.experts));
    std::iota(left.begin(), left.end(), 0);
    for (std::int64_t k = 0; k < c.choices; ++k) {
      const auto at = left.begin() + static_cast<std::ptrdiff_t>(random() % left.size() * (random() % 3) / 2);
      index.push_back(*at);
      left.erase(at);
    }
  }
  return integers(DType::i32, c.dims(), index);
}

// Of few values, so that there are ties.
Value drawn_weights(const Case& c, DType type, std::uint32_t seed) {
  Value weight = random_value(type, c.dims(), seed, 3);
  for (std::size_t i = 0; i < weight.size(); ++i) weight.set(i, std::floor(std::abs(weight[i])) / 4);
  return weight;
}

// The positions at the places of a sequence that lies in another order.
Value turned_round(const Case& c) {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(c.positions));
  for (std::int64_t i = 0; i < c.positions; ++i)
    positions[static_cast<std::size_t>(i)] = (c.positions + 3 - i) % c.positions;
  return integers(DType::i32, {c.positions}, positions);
}

// Picks `most` of each expert's choices of each sequence, the best of those left each time.
Numbers picked(const Case& c, const Value& index, const Value* weight, const Value* positions) {
  Numbers kept(index.size(), -1);
  const auto each = static_cast<std::size_t>(c.positions * c.choices);
  for (std::size_t first = 0; first < index.size(); first += each)
    for (std::int64_t e = 0; e < c.experts; ++e)
      for (std::int64_t n = 0; c.most == 0 || n < c.most; ++n) {
        std::size_t best = index.size();
        const auto position = [&](std::size_t i) {
          const std::size_t place = (i - first) / static_cast<std::size_t>(c.choices);
          return positions ? (*positions)[place] : static_cast<double>(place);
        };
        for (std::size_t i = first; i < first + each; ++i) {
          if (index[i] != static_cast<double>(e) || kept[i] >= 0) continue;
          const bool leads = best == index.size() || (weight && (*weight)[i] > (*weight)[best]) ||
                             ((!weight || (*weight)[i] == (*weight)[best]) && position(i) < position(best));
          if (leads) best = i;
        }
        if (best == index.size()) break;
        kept[best] = static_cast<double>(e);
      }
  return kept;
}

Call call_of(const Case& c, const Value& index, const Value& weight, const Value& positions) {
  return {"cap_choices", {index, weight, Value(DType::i32, c.dims()), positions}, c.attrs()};
}

TEST(CapChoices, KeepsTheLargestWeightsOfASequence) {
  for (const InstructionSet& set : all_kernels())
    for (const DType type : {DType::f64, DType::f32})
      for (const Case& c : cases) {
        const Value index = drawn_choices(c, 1), weight = drawn_weights(c, type, 2),
                    positions = turned_round(c);
        EXPECT_EQ(run(set, call_of(c, index, weight, Value()))[2].numbers(),
                  picked(c, index, &weight, nullptr));
        EXPECT_EQ(run(set, call_of(c, index, weight, positions))[2].numbers(),
                  picked(c, index, &weight, &positions));
      }
}

TEST(CapChoices, KeepsTheFirstPositionsWithoutWeights) {
  for (const InstructionSet& set : all_kernels())
    for (const Case& c : cases) {
      const Value index = drawn_choices(c, 3), positions = turned_round(c);
      EXPECT_EQ(run(set, call_of(c, index, Value(), Value()))[2].numbers(),
                picked(c, index, nullptr, nullptr));
      EXPECT_EQ(run(set, call_of(c, index, Value(), positions))[2].numbers(),
                picked(c, index, nullptr, &positions));
    }
}

// The drawn cases drop some and keep some, or they would say little.
TEST(CapChoices, TheDrawnCasesDropSome) {
  for (const Case& c : {cases[0], cases[1], cases[2], cases[4]}) {
    const Numbers kept = picked(c, drawn_choices(c, 1), nullptr, nullptr);
    EXPECT_GT(std::count(kept.begin(), kept.end(), -1), 0);
    EXPECT_LT(std::count(kept.begin(), kept.end(), -1), static_cast<std::ptrdiff_t>(kept.size()));
  }
}

TEST(CapChoices, SamplesAndThreadsChangeNoBit) {
  const Case& c = cases[1];
  for (const InstructionSet& set : all_kernels()) {
    Call call = call_of(c, drawn_choices(c, 5), drawn_weights(c, DType::f32, 6), Value());
    run(set, call);
    expect_batch_free(set, call, {0, 1, 2});
  }
}

// What fp64 rounds otherwise in another layout drops nothing else there.
TEST(CapChoices, WeightsThatDifferByRoundingAreEqual) {
  for (const InstructionSet& set : all_kernels()) {
    const Call call{"cap_choices",
                    {integers(DType::i32, {1, 4, 1}, {0, 0, 0, 0}),
                     Value(DType::f64, {1, 4, 1}, {0.3, 0.3 + 1e-15, 0.3 + 2e-15, 0.4}),
                     Value(DType::i32, {1, 4, 1}), Value()},
                    {Attr{.i = 2}, Attr{.i = 1}}};
    EXPECT_EQ(run(set, call)[2].numbers(), (Numbers{0, -1, -1, 0}));
  }
}

// One zero is as good as the other, and what is no number does not keep others from being counted.
TEST(CapChoices, WeightsThatAreNoNumbersLeaveAsManyAsFit) {
  const double nan = std::nan("");
  for (const InstructionSet& set : all_kernels()) {
    const auto kept = [&](const Numbers& weights) {
      return run(set, {"cap_choices",
                       {integers(DType::i32, {1, 4, 1}, {0, 0, 0, 0}), Value(DType::f32, {1, 4, 1}, weights),
                        Value(DType::i32, {1, 4, 1}), Value()},
                       {Attr{.i = 2}, Attr{.i = 1}}})[2]
          .numbers();
    };
    EXPECT_EQ(kept({-0.0, 0.0, -1, 0.0}), (Numbers{0, 0, -1, -1}));
    const Numbers some = kept({nan, 1, nan, nan});
    EXPECT_EQ(std::count(some.begin(), some.end(), 0), 2);
  }
}

// Sequence 1 has no target that counts.
TEST(CountDropped, CountsWhatIsNobodysInItsLayerAndNoPadding) {
  for (const InstructionSet& set : all_kernels()) {
    Call call{"count_dropped",
              {integers(DType::i32, {3, 2, 2}, {0, -1, -1, 2, -1, -1, -1, 3, -1, 0, 1, 2}),
               integers(DType::i32, {3, 2}, {-1, 5, -1, -1, 1, 1}), Value(DType::f64, {2, 1}, {10, 20})},
              {}};
    call.layer = 1;
    EXPECT_EQ(run(set, call)[2].numbers(), (Numbers{10, 23}));
  }
}

}  // namespace
}  // namespace prun::test::capacity_test
