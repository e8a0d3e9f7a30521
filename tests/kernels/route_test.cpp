// route, balance and steer: which experts are chosen where scores are equal or are no numbers, and what is
// counted.
#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(route_kernels, route_test)
PRUN_TEST_KERNELS(balance_kernels, route_test::balance)

namespace prun::test::route_test {
namespace {

using prun::Attr;
using prun::DType;
using prun::test::Call;
using prun::test::expect_batch_free;
using prun::test::find_kernel;
using prun::test::InstructionSet;
using prun::test::integers;
using prun::test::number;
using prun::test::random_value;
using prun::test::run;
using prun::test::run_on;
using prun::test::Value;

struct Routing {
  std::int64_t choices = 2, sigmoid = 0, normalise = 1, groups = 1, chosen_groups = 1, group_best = 2;
  double scale = 1;

  std::vector<Attr> attrs() const {
    return {Attr{.i = sigmoid}, Attr{.i = normalise},     Attr{.f = scale},     Attr{.i = choices},
            Attr{.i = groups},  Attr{.i = chosen_groups}, Attr{.i = group_best}};
  }
};

// The choices of one position with these logits.
std::vector<double> chosen(const InstructionSet& set, DType type, const std::vector<double>& logits,
                           const Routing& routing, const std::vector<double>& bias = {}) {
  const auto n = static_cast<std::int64_t>(logits.size());
  const Value added = bias.empty() ? Value() : Value(type, {n}, bias);
  Call call{"route",
            {Value(type, {1, 1, n}, logits), added, Value(DType::i32, {1, 1, routing.choices}),
             Value(type, {1, 1, routing.choices})},
            routing.attrs()};
  return run(set, call)[2].numbers();
}

using Numbers = std::vector<double>;

TEST(Route, OfEqualScoresTheLowerNumberIsChosen) {
  for (const InstructionSet& set : all_kernels())
    for (const DType type : {DType::f64, DType::f32}) {
      EXPECT_EQ(chosen(set, type, Numbers(9, 0.0), {.choices = 4}), (Numbers{0, 1, 2, 3}));
      EXPECT_EQ(chosen(set, type, {1, 3, 2, 3, 0, 3}, {.choices = 4}), (Numbers{1, 3, 5, 2}));
      EXPECT_EQ(chosen(set, type, Numbers(8, 1.0), {.choices = 3, .groups = 4, .chosen_groups = 2}),
                (Numbers{0, 1, 2}));
    }
}

TEST(Route, AGroupCountsByItsTwoBestOrItsBest) {
  const Numbers logits = {5, 0, 3, 3, 1, 1, 2, 2};
  for (const InstructionSet& set : all_kernels()) {
    Routing routing{.choices = 2, .sigmoid = 1, .groups = 4, .chosen_groups = 1, .group_best = 1};
    EXPECT_EQ(chosen(set, DType::f64, logits, routing), (Numbers{0, 1}));
    routing.group_best = 2;
    EXPECT_EQ(chosen(set, DType::f64, logits, routing), (Numbers{2, 3}));
  }
}

TEST(Route, ABiasChoosesAndDoesNotWeigh) {
  for (const InstructionSet& set : all_kernels()) {
    const Routing routing{.choices = 2, .sigmoid = 1, .scale = 2.5};
    const Numbers logits = {0.1, 0.2, 0.3, 0.4}, bias = {9, 0, 0, 8};
    EXPECT_EQ(chosen(set, DType::f64, logits, routing, bias), (Numbers{0, 3}));
    Call call{"route",
              {Value(DType::f64, {1, 1, 4}, logits), Value(DType::f64, {4}, bias),
               Value(DType::i32, {1, 1, 2}), Value(DType::f64, {1, 1, 2})},
              routing.attrs()};
    const auto score = [](double x) { return 1 / (1 + std::exp(-x)); };
    const double sum = score(0.1) + score(0.4);
    const Numbers weight = run(set, call)[3].numbers();
    EXPECT_NEAR(weight[0], 2.5 * score(0.1) / sum, 1e-15);
    EXPECT_NEAR(weight[1], 2.5 * score(0.4) / sum, 1e-15);
  }
}

// Whatever they are, all choices are experts and all differ: the loss then says what is wrong.
TEST(Route, ChoicesOfNoNumbersAreExpertsToo) {
  const double nan = std::nan(""), inf = INFINITY;
  for (const InstructionSet& set : all_kernels())
    for (const Numbers& logits : {Numbers(6, nan), Numbers{nan, 1, nan, 2, inf, -inf}, Numbers(6, -inf)}) {
      Numbers index = chosen(set, DType::f32, logits, {.choices = 4});
      std::sort(index.begin(), index.end());
      EXPECT_EQ(std::adjacent_find(index.begin(), index.end()), index.end());
      EXPECT_GE(index.front(), 0);
      EXPECT_LT(index.back(), 6);
    }
}

TEST(Route, SamplesAndThreadsChangeNoBit) {
  for (const InstructionSet& set : all_kernels())
    for (const DType type : {DType::f64, DType::f32}) {
      const Routing routing{.choices = 3, .groups = 4, .chosen_groups = 3};
      Call call{"route",
                {random_value(type, {3, 7, 12}, 1), random_value(type, {12}, 2, 0.1),
                 Value(DType::i32, {3, 7, 3}), Value(type, {3, 7, 3})},
                routing.attrs()};
      const std::vector<Value> done = run(set, call);
      expect_batch_free(set, call, {0, 2, 3});
      Call back{"route_grad",
                {call.operands[0], done[2], random_value(type, {3, 7, 3}, 3), Value(type, {3, 7, 12})},
                {Attr{.i = 0}, Attr{.i = 1}, Attr{.f = 1}}};
      run(set, back);
      expect_batch_free(set, back, {0, 1, 2, 3});
    }
}

// ---------------------------------------------------------------- balance

InstructionSet balances() { return balance::all_kernels().front(); }

// Sequence 1 has no target that counts.
TEST(Balance, PaddingCountsInNothing) {
  const Value index = integers(DType::i32, {2, 2, 2}, {0, 1, 0, 2, 3, 3, 3, 3}),
              targets = integers(DType::i32, {2, 2}, {-1, 5, -1, -1});
  Call call{"balance",
            {random_value(DType::f64, {2, 2, 4}, 1), index, targets, number(0.5), Value(DType::f64, {3, 4}),
             Value(DType::f64, {3, 2})},
            {Attr{.i = 0}, Attr{.f = 0.1}, Attr{.f = 0.01}}};
  call.layer = 1;
  const std::vector<Value> done = run(balances(), call);
  EXPECT_EQ(done[4].numbers(), (Numbers{0, 0, 0, 0, 2, 1, 1, 0, 0, 0, 0, 0}));
  const Numbers losses = done[5].numbers();
  EXPECT_GT(losses[2], 0);
  EXPECT_GT(losses[3], 0);
  for (const std::size_t other : {0, 1, 4, 5}) EXPECT_EQ(losses[other], 0);
  Call back{"balance_grad",
            {call.operands[0], index, targets, number(0.5), Value(DType::f64, {2, 2, 4})},
            call.attrs};
  const Numbers dlogits = run(balances(), back)[4].numbers();
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_NE(dlogits[i], 0);
    EXPECT_EQ(dlogits[8 + i], 0);
  }
}

// All experts alike: each has the mean, and the loss is the coefficient for each sequence.
TEST(Balance, EvenLoadsCostTheCoefficient) {
  const Value index = integers(DType::i32, {1, 2, 2}, {0, 1, 2, 3}),
              targets = integers(DType::i32, {1, 2}, {1, 1});
  for (const std::int64_t sigmoid : {0, 1}) {
    Call call{"balance",
              {Value(DType::f64, {1, 2, 4}, Numbers(8, 0.5)), index, targets, number(1),
               Value(DType::f64, {1, 4}), Value(DType::f64, {1, 2})},
              {Attr{.i = sigmoid}, Attr{.f = 0.3}, Attr{.f = 0.1}}};
    const Numbers losses = run(balances(), call)[5].numbers();
    EXPECT_NEAR(losses[0], 0.3, 1e-15);
    EXPECT_NEAR(losses[1], 0.1 * std::pow(0.5 + std::log(4.0), 2), 1e-15);
  }
}

TEST(Steer, MovesABiasAgainstTheLoadOfItsLayerIfTheStepIsKept) {
  const Value counts(DType::f64, {2, 4}, {9, 9, 9, 9, 10, 30, 20, 20});
  for (const double keep : {1.0, 0.0}) {
    Call call{"steer", {counts, number(keep), Value(DType::f32, {4}, {1, 1, 1, 1})}, {Attr{.f = 0.25}}};
    call.layer = 1;
    const Numbers bias = run(balances(), call)[2].numbers();
    EXPECT_EQ(bias, keep != 0 ? (Numbers{1.25, 0.75, 1, 1}) : (Numbers{1, 1, 1, 1}));
  }
}

}  // namespace
}  // namespace prun::test::route_test
