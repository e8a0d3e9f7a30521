// Training with a third party's table, head and exchanges.
#include <gtest/gtest.h>

#include "support/assembly_fixture.hpp"

namespace prun::test::own_ops_test {
namespace {

constexpr const char* ops = "[plugins]\nops = ['own-ops']\n";

std::string swap(const std::string& from, const std::string& to) {
  return "[[strategy]]\nplugin = 'swap-activation'\nfrom = '" + from + "'\nto = '" + to + "'\n";
}

TEST(OwnOps, TokensBeyondTheirTableAreRefused) {
  const Assembly assembly(
      tiny_recipe({"model.vocab=32"}, ops + swap("embedding", "rows") + swap("lm_head", "head")), plugins());
  try {
    Trainer trainer(assembly, plugins());
    trainer.step();
    FAIL() << "nothing was raised";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("model.vocab = 32"), std::string::npos) << error.what();
  }
}

TEST(OwnOps, AnExchangeOfOnesOwnGivesTheSameBits) {
  const std::vector<std::string> sets = {"batch.micro=2", "precision.reduce=bf16"};
  for (const char* zero : {"", "[[strategy]]\nplugin = 'zero'\nstage = 2\n"})
    EXPECT_EQ(
        run_ranks(
            tiny_recipe(sets, ops + data_parallel(2) + zero + "[[strategy]]\nplugin = 'own-exchange'\n"), 4),
        run_ranks(tiny_recipe(sets, data_parallel(2) + zero), 4))
        << zero;
}

}  // namespace
}  // namespace prun::test::own_ops_test
