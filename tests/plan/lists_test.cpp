// A comm plugin may run the exchanges of one list at once: none has its result where another reads or writes.
#include "plan/proof/check_plan.hpp"

#include <gtest/gtest.h>

#include "support/assembly_fixture.hpp"
#include "support/built_plugins.hpp"

namespace prun::test::lists_test {
namespace {

// The gradients of keys and of values are summed over ranks one right after the other.
Assembly context_of_two() {
  const std::string llama = "[mesh]\ncp = 2\n[[strategy]]\nplugin = 'context'\n";
  return Assembly(tiny_recipe({"model.plugin=llama", "model.kv_heads=2", "model.heads=4", "model.hidden=64",
                               "model.seq=64", "model.ffn=96", "batch.micro=1"},
                              llama),
                  plugins());
}

// Returns the pairs of exchanges that are in one list, first and second.
std::vector<std::pair<PlannedStep*, PlannedStep*>> pairs_in_lists(Plan& plan) {
  std::vector<std::pair<PlannedStep*, PlannedStep*>> pairs;
  for (PlannedFunction& function : plan.functions)
    for (const Piece& piece : function.pieces)
      for (std::int32_t at = piece.first; at + 1 < piece.last; ++at)
        if (function.steps[at].exchange && function.steps[at + 1].exchange)
          pairs.emplace_back(&function.steps[at], &function.steps[at + 1]);
  return pairs;
}

TEST(ListsOfExchanges, HaveMemoryThatNoOtherTouches) {
  const Assembly assembly = context_of_two();
  Plan plan = assembly.plan();
  ASSERT_FALSE(pairs_in_lists(plan).empty());
  EXPECT_NO_THROW(check_lists(assembly.program(), plan));
}

TEST(ListsOfExchanges, AreRefusedByTheProofWhereOneHasItsResultInAnothersMemory) {
  const Assembly assembly = context_of_two();
  for (const bool result_of_first : {false, true}) {
    Plan plan = assembly.plan();
    const auto [first, second] = pairs_in_lists(plan).front();
    (result_of_first ? first : second)->exchange->out = (result_of_first ? second : first)->exchange->in;
    EXPECT_THROW(check_lists(assembly.program(), plan), Error) << result_of_first;
  }
}

}  // namespace
}  // namespace prun::test::lists_test
