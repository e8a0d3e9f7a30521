// Recomputation changes no bit: neither alone, nor over poisoned memory, nor on several ranks.
#include <gtest/gtest.h>

#include <functional>
#include <span>

#include "base/random.hpp"
#include "inspect/verify.hpp"
#include "support/assembly_fixture.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::recompute_test {
namespace {

std::vector<double> numbers_of(const std::vector<std::string>& sets, const std::string& more) {
  std::vector<std::string> all = sets;
  all.insert(all.end(), {"run.poison=true", "batch.micro=2"});
  const Assembly assembly(tiny_recipe(all, more), plugins());
  Trainer trainer(assembly, plugins());
  std::vector<double> numbers = train_steps(trainer, 3);
  const std::vector<double> parameters = parameters_of(trainer);
  numbers.insert(numbers.end(), parameters.begin(), parameters.end());
  return numbers;
}

std::string strategy(const std::string& options) {
  return "[[strategy]]\nplugin = \"recompute\"\n" + options + "\n";
}

std::string selective(const std::string& kinds) {
  return strategy("mode = \"selective\"\nops = [" + kinds + "]");
}

void keeps_every_bit(const std::vector<std::string>& sets, const std::vector<std::string>& selections) {
  const std::vector<double> expected = numbers_of(sets, "");
  std::vector<std::string> ways = {strategy("mode = \"none\""), strategy("mode = \"full\""),
                                   strategy("segments = [\"embedding\", \"block\", \"head\"]")};
  for (const std::string& kinds : selections) ways.push_back(selective(kinds));
  for (const std::string& way : ways) EXPECT_EQ(numbers_of(sets, way), expected) << way;
}

TEST(Recompute, GptKeepsEveryBit) {
  for (const char* tied : {"model.tied=true", "model.tied=false"})
    for (const char* dropout : {"model.dropout=0", "model.dropout=0.1"}) {
      std::vector<std::string> selections = {R"("gelu")", R"("gelu", "layernorm")", R"("attention", "add")",
                                             R"("linear")", R"("linear", "attention", "layernorm", "gelu")"};
      if (dropout == std::string("model.dropout=0.1"))
        selections.emplace_back(R"("dropout", "linear", "add", "layernorm")");
      keeps_every_bit({tied, dropout}, selections);
    }
}

TEST(Recompute, LlamaKeepsEveryBit) {
  for (const char* tied : {"model.tied=true", "model.tied=false"})
    keeps_every_bit({"model.plugin=llama", "model.ffn=64", "model.kv_heads=2", tied},
                    {R"("swiglu", "rmsnorm")", R"("rope", "attention")", R"("linear", "add")"});
}

TEST(Recompute, NarrowNumbersKeepEveryBit) {
  keeps_every_bit({"precision.compute=bf16", "model.dropout=0.1"}, {R"("gelu", "layernorm", "attention")"});
}

TEST(Recompute, WhatTheBudgetChoseKeepsEveryBit) {
  const std::vector<std::string> sets = {"model.layers=6", "model.seq=64", "model.dropout=0.1"};
  const auto needed = [&](const std::string& more) {
    std::vector<std::string> all = sets;
    all.insert(all.end(), {"run.poison=true", "batch.micro=2"});
    return Assembly(tiny_recipe(all, more), plugins()).plan().layout.memory.total();
  };
  const std::int64_t middle = (needed("") + needed(strategy(""))) / 2;
  std::vector<std::string> limited = sets;
  limited.push_back("device.memory=" + std::to_string(middle) + "B");
  EXPECT_EQ(numbers_of(limited, strategy("mode = \"budget\"")), numbers_of(sets, ""));
}

// ---------------------------------------------------------------- several ranks

const std::vector<std::string> on_ranks = {"device.threads=1", "device.pin=false", "batch.micro=1",
                                           "model.dropout=0.1"};

TEST(Recompute, TwoRanksEqualOne) {
  std::vector<std::string> sets = on_ranks;
  sets.insert(sets.end(), {"precision.compute=fp64", "precision.state=fp64"});
  const LayoutVerdict verdict =
      verify_layout(tiny_recipe(sets, data_parallel(2) + strategy("")), plugins().places(), 5);
  EXPECT_EQ(verdict.ranks, 2);
  EXPECT_TRUE(verdict.equal()) << to_text(verdict);
}

TEST(Recompute, TwoRanksKeepEveryBit) {
  EXPECT_EQ(run_ranks(tiny_recipe(on_ranks, data_parallel(2) + strategy("")), 3),
            run_ranks(tiny_recipe(on_ranks, data_parallel(2)), 3));
}

std::string tensor_parallel(bool sequence) {
  return std::string("[mesh]\ntp = 2\n[[strategy]]\nplugin = \"tensor\"\nsequence = ") +
         (sequence ? "true\n" : "false\n");
}

int exchanges_in_backward(const Assembly& assembly) {
  int count = 0;
  for (const PlannedFunction& function : assembly.plan().functions)
    if (function.kind == FunctionKind::backward)
      for (const PlannedStep& step : function.steps) count += step.exchange.has_value();
  return count;
}

// Exchanges of forward run again as well, on all ranks together; where they are named, they alone do.
TEST(Recompute, ExchangesRunAgainWithTheSameBits) {
  for (const bool sequence : {false, true}) {
    const Recipe plain = tiny_recipe(on_ranks, tensor_parallel(sequence));
    const Recipe full = tiny_recipe(on_ranks, tensor_parallel(sequence) + strategy(""));
    EXPECT_GT(exchanges_in_backward(Assembly(full, plugins())),
              exchanges_in_backward(Assembly(plain, plugins())));
    EXPECT_EQ(run_ranks(full, 3), run_ranks(plain, 3));
  }
  const std::string along_seq = tensor_parallel(true);
  std::vector<std::string> two = on_ranks;  // samples, whose parts do not lie side by side
  two.insert(two.end(), {"batch.micro=2", "batch.global=4"});
  for (const auto& [sets, ops] :
       {std::pair(on_ranks, R"("all_gather")"), std::pair(two, R"("all_gather", "unblock")")})
    EXPECT_EQ(run_ranks(tiny_recipe(sets, along_seq + selective(ops)), 3),
              run_ranks(tiny_recipe(sets, along_seq), 3));
}

}  // namespace
}  // namespace prun::test::recompute_test
