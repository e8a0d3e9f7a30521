// Keys and values in pieces: all but the first travel while attention runs on the one before.
#include <gtest/gtest.h>

#include <string_view>

#include "estimate/simulate.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test::pieces_test {
namespace {

// Attention takes four seconds in all, and so does its gradient; keys and values of a layer a second each.
class AttentionCostModel final : public CostModel {
 public:
  explicit AttentionCostModel(int pieces) : pieces_(pieces) {}

  double kernel(const Program& program, const PlannedStep& step) override {
    return std::string_view(program.op(step.op).kind()).starts_with("attention_across") ? 4.0 / pieces_ : 0;
  }
  double exchange(const PlannedExchange& exchange, std::int64_t, std::string_view) override {
    return exchange.kind == CommKind::all_gather ? 1.0 / pieces_ : 0;
  }

 private:
  const int pieces_;
};

double step_of(int pieces) {
  const Assembly assembly(tiny_recipe({"model.layers=3", "model.heads=4", "model.hidden=16", "model.seq=16",
                                       "batch.micro=1", "batch.global=2"},
                                      "[mesh]\ncp = 2\n[[strategy]]\nplugin = 'context'\npieces = " +
                                          std::to_string(pieces) + "\n"),
                          plugins());
  AttentionCostModel cost_model(pieces);
  return simulate(
             all_ranks(assembly.program(), [&](int rank) -> const Plan& { return assembly.plan_of(rank); }),
             cost_model)
      .step_seconds;
}

// Three layers, two microbatches, forward and backward: each gathers two seconds, of which a piece's part is
// seen.
TEST(Pieces, TravelBesideAttention) {
  constexpr double functions = 3 * 2 * 2;
  EXPECT_NEAR(step_of(1), functions * (2 + 4), 1e-9);
  EXPECT_NEAR(step_of(2), functions * (2.0 / 2 + 4), 1e-9);
  EXPECT_NEAR(step_of(4), functions * (2.0 / 4 + 4), 1e-9);
}

}  // namespace
}  // namespace prun::test::pieces_test
