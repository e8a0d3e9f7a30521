// Every kind of mistake in a recipe: its exact message, line and column.
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
    Keys, OneMistake,
    testing::Values(
        Mistake{"lr = 3e-4", "learning_rate = 3e-4\nlr = 1",
                "r.toml:19:1: error: unknown key 'learning_rate' in [optimizer]; did you mean 'lr'?\n"
                "  19 | learning_rate = 3e-4\n"
                "     | ^~~~~~~~~~~~~"},
        Mistake{"vocab = 256", "vocab = 256\nlayerz = 2",
                "r.toml:8:1: error: unknown key 'layerz' in [model]; did you mean 'layers'?\n"
                "  8 | layerz = 2\n"
                "    | ^~~~~~"},
        Mistake{"micro = 2", "micro = 2\nclip = 1.0",
                "r.toml:16:1: error: unknown key 'clip' in [batch]; it belongs in [optimizer]\n"
                "  16 | clip = 1.0\n"
                "     | ^~~~"},
        Mistake{"micro = 2", "micro = 2\nlearning_rate = 1.0",
                "r.toml:16:1: error: unknown key 'learning_rate' in [batch]; it is 'lr' in [optimizer]\n"
                "  16 | learning_rate = 1.0\n"
                "     | ^~~~~~~~~~~~~"},
        Mistake{
            "micro = 2", "micro = 2\ngradient_accumulation = 4",
            "r.toml:16:1: error: unknown key 'gradient_accumulation' in [batch]; accumulation follows from "
            "batch.global, batch.micro and the mesh\n"
            "  16 | gradient_accumulation = 4\n"
            "     | ^~~~~~~~~~~~~~~~~~~~~"},
        Mistake{"lr = 3e-4", "lr = 3e-4\nwarmup = 10",
                "r.toml:20:1: error: unknown key 'warmup' in [optimizer]; did you mean 'schedule.warmup'?\n"
                "  20 | warmup = 10\n"
                "     | ^~~~~~"},
        Mistake{"lr = 3e-4", "lr = 3e-4\nschedule = { kind = \"linear\", wramup = 1 }",
                "r.toml:20:31: error: unknown key 'schedule.wramup' in [optimizer]; did you mean "
                "'schedule.warmup'?\n"
                "  20 | schedule = { kind = \"linear\", wramup = 1 }\n"
                "     |                               ^~~~~~"},
        Mistake{"micro = 2", "micro = 2\nxyzzy = 1",
                "r.toml:16:1: error: unknown key 'xyzzy' in [batch]; there are global, micro, order, "
                "interleave, pad, ramp.start, ramp.increment, ramp.samples, ramp.sizes, ramp.until\n"
                "  16 | xyzzy = 1\n     | ^~~~~"},
        Mistake{"micro = 2", "micro = 2\n\"gl.obal\" = 1",
                "r.toml:16:1: error: unknown key 'gl.obal' in [batch]; did you mean 'global'?\n  16 | "
                "\"gl.obal\" = 1\n     | ^~~~~~~~~"},
        Mistake{"[run]", "lr = 1\n[run]",
                "r.toml:1:1: error: unknown key 'lr' outside any section; it belongs in [optimizer]\n"
                "  1 | lr = 1\n"
                "    | ^~"},
        Mistake{"[mesh]", "[optimiser]\n[mesh]",
                "r.toml:21:2: error: unknown section [optimiser]; did you mean [optimizer]?\n"
                "  21 | [optimiser]\n"
                "     |  ^~~~~~~~~"},
        Mistake{"[mesh]", "[[strategies]]\n[mesh]",
                "r.toml:21:3: error: unknown section [strategies]; did you mean [[strategy]]?\n"
                "  21 | [[strategies]]\n"
                "     |   ^~~~~~~~~~"},
        Mistake{"[mesh]", "[training]\n[mesh]",
                "r.toml:21:2: error: unknown section [training]; did you mean [run]?\n"
                "  21 | [training]\n"
                "     |  ^~~~~~~~"},
        Mistake{
            "tp = 2", "tensor-ish = 2",
            "r.toml:22:1: error: name 'tensor-ish' in [mesh] is not made of letters, digits and '_', or is "
            "longer than 23 letters\n"
            "  22 | tensor-ish = 2\n"
            "     | ^~~~~~~~~~"},
        Mistake{"dp = 4", "dp = 4\n[[strategy]]\nplugin = \"zero\"\nstag = 1\nstage = 1",
                "r.toml:26:1: error: unknown key 'stag' in [[strategy]] 'zero'; did you mean 'stage'?\n"
                "  26 | stag = 1\n"
                "     | ^~~~"}));

INSTANTIATE_TEST_SUITE_P(
    Missing, OneMistake,
    testing::Values(Mistake{"global = 8\n", "",
                            "r.toml:13:1: error: missing required key 'global' in [batch]\n"
                            "  13 | [batch]\n"
                            "     | ^~~~~~~"},
                    Mistake{"[batch]\nglobal = 8\nmicro = 2\n", "",
                            "r.toml: error: missing section [batch]; it must give 'global'"},
                    Mistake{"[model]\nplugin = \"gpt\"\nvocab = 256", "[model]\nplugin = \"gpt\"",
                            "r.toml:5:1: error: missing required key 'vocab' in [model]\n"
                            "  5 | [model]\n"
                            "    | ^~~~~~~"},
                    Mistake{"dp = 4", "dp = 4\n[[strategy]]\nplugin = \"zero\"",
                            "r.toml:24:1: error: missing required key 'stage' in [[strategy]] 'zero'\n"
                            "  24 | [[strategy]]\n"
                            "     | ^~~~~~~~~~~~"},
                    Mistake{"dp = 4", "dp = 4\n[[strategy]]\naxis = \"dp\"",
                            "r.toml:24:1: error: missing required key 'plugin' in [[strategy]]\n"
                            "  24 | [[strategy]]\n"
                            "     | ^~~~~~~~~~~~"}));

INSTANTIATE_TEST_SUITE_P(
    Values, OneMistake,
    testing::Values(
        Mistake{
            "lr = 3e-4", "lr = \"3e-4\"",
            "r.toml:19:6: error: wrong type for 'lr' in [optimizer]: expected float, got string; leave out "
            "the quotes: 3e-4\n"
            "  19 | lr = \"3e-4\"\n"
            "     |      ^~~~~~"},
        Mistake{
            "steps = 100", "steps = 1e2",
            "r.toml:3:9: error: wrong type for 'steps' in [run]: expected int, got float; write it out: 100\n"
            "  3 | steps = 1e2\n"
            "    |         ^~~"},
        Mistake{"name = \"test\"", "name = 2020-01-01",
                "r.toml:2:8: error: wrong type for 'name' in [run]: expected string, got date or time\n"
                "  2 | name = 2020-01-01\n"
                "    |        ^~~~~~~~~~"},
        Mistake{"lr = 3e-4", "lr = 3e-4\nschedule = \"cosine\"",
                "r.toml:20:12: error: wrong type for 'schedule' in [optimizer]: expected table, got string; "
                "it is a choice of 'schedule.kind'\n"
                "  20 | schedule = \"cosine\"\n"
                "     |            ^~~~~~~~"},
        Mistake{"lr = 3e-4", "lr = { x = 1 }",
                "r.toml:19:6: error: wrong type for 'lr' in [optimizer]: expected float, got table\n"
                "  19 | lr = { x = 1 }\n"
                "     |      ^~~~~~~~~"},
        Mistake{
            "lr = 3e-4", "lr = 3e-4\nbetas = 0.9",
            "r.toml:20:9: error: wrong type for 'betas' in [optimizer]: expected list of floats, got float\n"
            "  20 | betas = 0.9\n"
            "     |         ^~~"},
        Mistake{"lr = 3e-4", "lr = 3e-4\nbetas = [0.9, true]",
                "r.toml:20:15: error: wrong type for element 2 of 'betas' in [optimizer]: expected float, "
                "got bool\n"
                "  20 | betas = [0.9, true]\n"
                "     |               ^~~~"},
        Mistake{"lr = 3e-4", "lr = 3e-4\nbetas = [0.9, 1.5]",
                "r.toml:20:15: error: element 2 of 'betas' in [optimizer] is 1.5, outside its range 0..1\n"
                "  20 | betas = [0.9, 1.5]\n"
                "     |               ^~~"},
        Mistake{"vocab = 256", "vocab = 1",
                "r.toml:7:9: error: 'vocab' in [model] is 1, outside its range 2..\n"
                "  7 | vocab = 1\n"
                "    |         ^"},
        Mistake{"lr = 3e-4", "lr = nan",
                "r.toml:19:6: error: 'lr' in [optimizer] is not a finite number\n"
                "  19 | lr = nan\n"
                "     |      ^~~"},
        Mistake{"steps = 100", "steps = 100\non_nonfinite = \"skp\"",
                "r.toml:4:16: error: 'on_nonfinite' in [run] is 'skp', not one of stop, skip; did you mean "
                "'skip'?\n"
                "  4 | on_nonfinite = \"skp\"\n"
                "    |                ^~~~~"},
        Mistake{"[mesh]", "[device]\nmemory = \"80 bananas\"\n[mesh]",
                "r.toml:22:10: error: 'memory' in [device] is '80 bananas', not a size such as \"80GiB\"\n"
                "  22 | memory = \"80 bananas\"\n"
                "     |          ^~~~~~~~~~~~"},
        Mistake{"dp = 4", "dp = 0",
                "r.toml:23:6: error: 'dp' in [mesh] is 0, outside its range 1..1048576\n"
                "  23 | dp = 0\n"
                "     |      ^"}));

INSTANTIATE_TEST_SUITE_P(
    Shapes, OneMistake,
    testing::Values(
        Mistake{"[batch]", "[[batch]]",
                "r.toml:13:1: error: wrong type for [batch]: expected table, got list; write it with "
                "single brackets\n"
                "  13 | [[batch]]\n"
                "     | ^~~~~~~~~"},
        Mistake{"[mesh]", "[strategy]\nplugin = \"data\"\n[mesh]",
                "r.toml:21:1: error: wrong type for [[strategy]]: expected list of tables, got table; "
                "write it with double brackets\n"
                "  21 | [strategy]\n"
                "     | ^~~~~~~~~~"},
        Mistake{"[run]", "strategy = [1]\n[run]",
                "r.toml:1:13: error: wrong type in [[strategy]]: expected table, got int\n"
                "  1 | strategy = [1]\n"
                "    |             ^"},
        Mistake{"[run]", "device = \"cpu\"\n[run]",
                "r.toml:1:10: error: wrong type for [device]: expected table, got string\n"
                "  1 | device = \"cpu\"\n"
                "    |          ^~~~~"}));

INSTANTIATE_TEST_SUITE_P(
    Plugins, OneMistake,
    testing::Values(
        Mistake{"\"gpt\"", "\"gtp\"",
                "r.toml:6:10: error: unknown model plugin 'gtp'; did you mean 'gpt'?\n"
                "  6 | plugin = \"gtp\"\n"
                "    |          ^~~~~"},
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
        Mistake{"\"adamw\"", "7",
                "r.toml:18:10: error: wrong type for 'plugin' in [optimizer]: expected string, got int; put "
                "it in quotes: \"7\"\n"
                "  18 | plugin = 7\n"
                "     |          ^"},
        Mistake{"[mesh]", "[comm]\ndefault = \"ncl\"\n[mesh]",
                "r.toml:22:11: error: unknown comm plugin 'ncl'; did you mean 'nccl'?\n"
                "  22 | default = \"ncl\"\n"
                "     |           ^~~~~"},
        Mistake{"[mesh]", "[[observer]]\nplugin = \"consol\"\n[mesh]",
                "r.toml:22:10: error: unknown observer plugin 'consol'; did you mean 'console'?\n"
                "  22 | plugin = \"consol\"\n"
                "     |          ^~~~~~~~"}));

INSTANTIATE_TEST_SUITE_P(
    Syntax, OneMistake,
    testing::Values(
        Mistake{"name = \"test\"", "name = test",
                "r.toml:2:9: error: TOML syntax, boolean: expected 'true', saw 'te'; text needs quotes\n"
                "  2 | name = test\n"
                "    |         ^"},
        Mistake{"steps = 100", "steps = 100\nsteps = 200",
                "r.toml:4:9: error: TOML syntax, key-value pair: cannot redefine existing integer 'steps'; "
                "the first is in line 3, so leave one of them out\n"
                "  4 | steps = 200\n"
                "    |         ^"},
        Mistake{
            "micro = 2", "micro = 2\n[ run ] # again",
            "r.toml:16:1: error: TOML syntax, table header: cannot redefine existing table 'run'; the first "
            "is in line 1, so put both in one\n"
            "  16 | [ run ] # again\n"
            "     | ^"},
        Mistake{
            "[mesh]", "[strategy]\n[strategy]\n[mesh]",
            "r.toml:22:1: error: TOML syntax, table header: cannot redefine existing table 'strategy'; the "
            "first is in line 21, and there may be several: write [[strategy]] for each\n"
            "  22 | [strategy]\n"
            "     | ^"},
        Mistake{"[run]", "include = [\"x.toml\"]\n[run]",
                "r.toml:1:1: error: 'include' needs a recipe that lies in a file\n"
                "  1 | include = [\"x.toml\"]\n"
                "    | ^~~~~~~"}));

TEST(Problems, TheGoodRecipeHasNone) { EXPECT_EQ(complaint(good_recipe), ""); }

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
