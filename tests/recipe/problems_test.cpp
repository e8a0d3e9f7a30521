// Mistakes that take plugins made up for it; tests/cases/recipe has all others. Then how problems are shown.
#include <gtest/gtest.h>

#include "recipe/fixture.hpp"

namespace prun::test {
namespace {

struct Mistake {
  std::string from, to;  // what is changed in the good recipe
  std::string complaint;
};

class OneMistake : public testing::TestWithParam<Mistake> {};

TEST_P(OneMistake, IsShownInItsPlace) {
  EXPECT_EQ(complaint(good_with(GetParam().from, GetParam().to)), GetParam().complaint);
}

INSTANTIATE_TEST_SUITE_P(
    OfThesePlugins, OneMistake,
    testing::Values(
        Mistake{"[model]\nplugin = \"gpt\"\nvocab = 256", "[model]\nplugin = \"gpt\"",
                "r.toml:5:1: error: missing required key 'vocab' in [model]\n"
                "  5 | [model]\n"
                "    | ^~~~~~~"},
        Mistake{"dp = 4", "dp = 4\n[[strategy]]\nplugin = \"zero\"",
                "r.toml:24:1: error: missing required key 'stage' in [[strategy]] 'zero'\n"
                "  24 | [[strategy]]\n"
                "     | ^~~~~~~~~~~~"},
        Mistake{"\"adamw\"", "\"lion\"",
                "r.toml:18:10: error: unknown optimizer plugin 'lion'; there is adamw, grabby, sgd\n"
                "  18 | plugin = \"lion\"\n"
                "     |          ^~~~~~"},
        Mistake{"\"adamw\"", "\"broken\"",
                "r.toml:18:10: error: its note is damaged; rebuild it\n"
                "  18 | plugin = \"broken\"\n"
                "     |          ^~~~~~~~"},
        Mistake{
            "\"adamw\"", "\"grabby\"",
            "r.toml:18:10: error: optimizer plugin 'grabby' declares 'lr', which the core reads itself; the "
            "plugin must rename it\n"
            "  18 | plugin = \"grabby\"\n"
            "     |          ^~~~~~~~"},
        Mistake{"[run]", "include = [\"x.toml\"]\n[run]",
                "r.toml:1:1: error: 'include' needs a recipe that lies in a file\n"
                "  1 | include = [\"x.toml\"]\n"
                "    | ^~~~~~~"}));

TEST(Problems, TheGoodRecipeHasNone) { EXPECT_EQ(complaint(good_recipe), ""); }

TEST(Problems, AKeyByAnOldNameIsRefusedWithTheNewOne) {
  const std::string now = "' now; rename it\n";
  const auto first_line = [](const std::string& set) {
    const std::string all = complaint(good_recipe, {set});
    return all.substr(all.find("cannot"), all.find('\n') + 1 - all.find("cannot"));
  };
  EXPECT_EQ(first_line("run.changed=['run.seed']"),
            "cannot read key 'run.changed': it is called 'run.allow_changed" + now);
  EXPECT_EQ(first_line("model.turned=4"),
            "cannot read key 'model.turned': it is called 'model.rope_head_dim" + now);
  EXPECT_EQ(first_line("run.layout=said"),
            "cannot read 'run.layout = \"said\"': it is called 'run.layout = \"recipe\"" + now);
  EXPECT_EQ(first_line("data.documents='apart'"),
            "cannot read 'data.documents = \"apart\"': it is called 'data.mask_documents = true" + now);
  EXPECT_EQ(
      first_line("precision.weight_codes=step"),
      "cannot read 'precision.weight_codes = \"step\"': strategy 'fp8' has it now; add [[strategy]] plugin = "
      "\"fp8\", with 'cache_weights = true', and leave it out here\n");
  EXPECT_EQ(first_line("precision.matmul=fp8"),
            "cannot read 'precision.matmul = \"fp8\"': strategy 'fp8' has it now; add [[strategy]] plugin = "
            "\"fp8\", "
            "and leave it out here\n");
  EXPECT_EQ(first_line("precision.matmul=compute"),
            "cannot read key 'precision.matmul': that is the default now, which a strategy may change; leave "
            "it out\n");
  EXPECT_EQ(first_line("optimizer.average=0.9"),
            "cannot read key 'optimizer.average': strategy 'average' has it now; add [[strategy]] plugin = "
            "\"average\", with 'decay', and leave it out here\n");
  EXPECT_EQ(complaint(good_recipe, {"run.layout=recipe", "batch.order=breadth_first"}), "");
}

// A run in fp8 goes on as one; of another, nothing is left of the keys.
TEST(Problems, WhatAStrategyHasNowIsStoredInItsSection) {
  using recipe::StoredSettings;
  EXPECT_EQ(recipe::stored_settings({{"precision.matmul", "\"fp8\""},
                                     {"precision.saved", "\"fp8\""},
                                     {"precision.cache_weights", "false"},
                                     {"precision.count_every", "5"},
                                     {"run.changed", "[]"},
                                     {"strategy.0.plugin", "\"data\""}}),
            (StoredSettings{{"run.allow_changed", "[]"},
                            {"strategy.0.plugin", "\"data\""},
                            {"strategy.1.plugin", "\"fp8\""},
                            {"strategy.1.activations", "true"},
                            {"strategy.1.statistics_every", "5"}}));
  EXPECT_EQ(recipe::stored_settings({{"precision.products", "\"compute\""}, {"precision.count_every", "0"}}),
            StoredSettings{});
  EXPECT_EQ(recipe::stored_settings({{"optimizer.average", "0.9"}, {"eval.average", "true"}}),
            (StoredSettings{{"strategy.0.plugin", "\"average\""},
                            {"strategy.0.decay", "0.9"},
                            {"strategy.0.evaluate", "true"}}));
  EXPECT_EQ(recipe::stored_settings({{"optimizer.average", "0.0"}, {"eval.average", "true"}}),
            StoredSettings{});
}

TEST(Problems, AllAreReportedInSourceOrder) {
  std::string text = good_with("steps = 100", "steps = 0\nstep = 1");
  text.replace(text.find("\"gpt\""), 5, "\"gtp\"");
  text.replace(text.find("micro = 2"), 9, "micro = \"2\"");
  EXPECT_EQ(complaint(text, {"optimizer.lr=abc", "mesh.tp=0"}),
            "r.toml:3:9: error: 'steps' in [run] is 0, outside its range 1..1000000000000\n"
            "  3 | steps = 0\n"
            "    |         ^\n"
            "r.toml:4:1: error: unknown key 'step' in [run]; did you mean 'steps'?\n"
            "  4 | step = 1\n"
            "    | ^~~~\n"
            "r.toml:7:10: error: unknown model plugin 'gtp'; did you mean 'gpt'?\n"
            "  7 | plugin = \"gtp\"\n"
            "    |          ^~~~~\n"
            "r.toml:16:9: error: wrong type for 'micro' in [batch]: expected int, got string; leave out the "
            "quotes: 2\n"
            "  16 | micro = \"2\"\n"
            "     |         ^~~\n"
            "--set optimizer.lr=abc: error: wrong type for 'lr' in [optimizer]: expected float, got 'abc'\n"
            "   | --set optimizer.lr=abc\n"
            "   |                    ^~~\n"
            "--set mesh.tp=0: error: 'tp' in [mesh] is 0, outside its range 1..1048576\n"
            "   | --set mesh.tp=0\n"
            "   |               ^");
}

TEST(Problems, CaretsStandUnderTabsAndWideLetters) {
  EXPECT_EQ(complaint(good_with("steps = 100", "\tsteps\t= \"x\"")),
            "r.toml:3:10: error: wrong type for 'steps' in [run]: expected int, got string\n"
            "  3 | \tsteps\t= \"x\"\n"
            "    | \t     \t  ^~~");
  EXPECT_EQ(complaint(good_with("[mesh]", "[optimizer.schedule]\n\"日\" = 1\n[mesh]")),
            "r.toml:22:1: error: unknown key 'schedule.日' in [optimizer]\n"
            "  22 | \"日\" = 1\n"
            "     | ^~~~");
  EXPECT_EQ(
      complaint(good_with("lr = 3e-4", "lr = 1\nschedule = { kind = \"日\", steps = true }")),
      "r.toml:20:21: error: 'schedule.kind' in [optimizer] is '日', not one of constant, linear, cosine, "
      "wsd, inverse-sqrt, polynomial, steps, points\n"
      "  20 | schedule = { kind = \"日\", steps = true }\n"
      "     |                     ^~~~\n"
      "r.toml:20:34: error: wrong type for 'schedule.steps' in [optimizer]: expected int, got bool\n"
      "  20 | schedule = { kind = \"日\", steps = true }\n"
      "     |                                   ^~~~");
  EXPECT_EQ(complaint(good_with("[mesh]", "[device]\n\"é日\" = { a = 1 }\n[mesh]")),
            "r.toml:22:1: error: unknown key 'é日' in [device]; there are plugin, memory\n"
            "  22 | \"é日\" = { a = 1 }\n"
            "     | ^~~~~");
  EXPECT_EQ(complaint(good_with("name = \"test\"\nsteps = 100", "steps = 1\nname = [\"日é\", 2]")),
            "r.toml:3:8: error: wrong type for 'name' in [run]: expected string, got list\n"
            "  3 | name = [\"日é\", 2]\n"
            "    |        ^~~~~~~~~~");
  EXPECT_EQ(complaint(good_with("lr = 3e-4", "lr = 1\nx = { \"日é\" = 1, y = 2 }\n")),
            "r.toml:20:1: error: unknown key 'x' in [optimizer]\n"
            "  20 | x = { \"日é\" = 1, y = 2 }\n"
            "     | ^");
  EXPECT_EQ(complaint(good_with("lr = 3e-4", "lr = 1\nschedule = { \"日é\" = 1 }\n")),
            "r.toml:20:14: error: unknown key 'schedule.日é' in [optimizer]\n"
            "  20 | schedule = { \"日é\" = 1 }\n"
            "     |              ^~~~~");
}

TEST(Problems, WindowsLineEndsAndByteOrderMarkAreHarmless) {
  EXPECT_EQ(complaint("\xEF\xBB\xBFnam = 1\r\n" + std::string(good_recipe)),
            "r.toml:1:1: error: unknown key 'nam' outside any section\n"
            "  1 | nam = 1\n"
            "    | ^~~");
}

TEST(Problems, LongLinesAreCutAroundTheCaret) {
  const std::string text = complaint(good_with("steps = 100", "steps = [" + std::string(5000, ' ') + "]"));
  EXPECT_LT(text.size(), 600u);
  const std::string far =
      complaint(good_with("lr = 3e-4", "lr = 1\nbetas = [" + std::string(5000, ' ') + "true]"));
  EXPECT_NE(
      far.find("  20 | ..." + std::string(80, ' ') + "true]\n     |    " + std::string(80, ' ') + "^~~~"),
      std::string::npos)
      << far;
}

TEST(Problems, HopelessRecipesAreCutAfterFifty) {
  std::string many;
  for (int i = 0; i < 80; ++i) many += "zz" + std::to_string(i) + "zz = 1\n";
  const std::string text = complaint(good_with("micro = 2", "micro = 2\n" + many));
  EXPECT_TRUE(text.ends_with("\n... and 30 more")) << text;
}

TEST(Problems, OtherCodeCanPointAtKeys) {
  const Recipe recipe = parse(good_recipe, {"mesh.dp=3"});
  Diagnostics diagnostics;
  diagnostics.add(recipe.problem("mesh.dp", "3 does not divide batch.global = 8"));
  diagnostics.add(recipe.problem("optimizer.clip", "clip is at its default"));
  diagnostics.add(recipe.problem("batch.global", "8 is odd"));
  diagnostics.add(recipe.problem("device.memory", "too little"));
  EXPECT_EQ(diagnostics.text(),
            "r.toml:14:1: error: 8 is odd\n"
            "  14 | global = 8\n"
            "     | ^~~~~~\n"
            "r.toml:17:1: error: clip is at its default\n"
            "  17 | [optimizer]\n"
            "     | ^~~~~~~~~~~\n"
            "r.toml: error: too little\n"
            "--set mesh.dp=3: error: 3 does not divide batch.global = 8\n"
            "   | --set mesh.dp=3\n"
            "   |       ^~~~~~~");
  EXPECT_THROW(diagnostics.throw_if_any(), Error);
}

}  // namespace
}  // namespace prun::test
