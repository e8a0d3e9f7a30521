// A right recipe: its values, overrides, edits, and its printed form.
#include "recipe/recipe.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include "recipe/fixture.hpp"

namespace prun::test {
namespace {

using Texts = std::vector<std::string>;

const std::string rich_recipe = std::string(good_recipe) + R"(
[device]
memory = "80GiB"

[[strategy]]
plugin = "data"

[[strategy]]
plugin = "zero"
stage = 1

[[optimizer.group]]
match = "*.bias"
weight_decay = 0

[[optimizer.group]]
match = "wte"
frozen = true

[tier.nvme]
paths = ["/a \"b\"", "/ü"]
sizes = [1, 2]

[comm]
default = "nccl"
dp = "ucx"
)";

TEST(Recipe, GivesValuesAndDefaults) {
  const Recipe recipe = parse(rich_recipe);
  EXPECT_EQ(recipe.text("run.name"), "test");
  EXPECT_EQ(recipe.integer("model.layers"), 12);
  EXPECT_EQ(recipe.number("optimizer.lr"), 3e-4);
  EXPECT_EQ(recipe.text("optimizer.schedule.kind"), "constant");
  EXPECT_EQ(recipe.numbers("optimizer.betas"), (std::vector<double>{0.9, 0.95}));
  EXPECT_TRUE(recipe.flag("data.shuffle"));
  EXPECT_EQ(recipe.text("device.plugin"), "auto");
  EXPECT_EQ(recipe.bytes("device.memory"), 80LL << 30);
  EXPECT_EQ(parse(good_recipe).bytes("device.memory"), std::nullopt);
  EXPECT_EQ(recipe.text("observer.0.plugin"), "console");
  EXPECT_EQ(recipe.texts("tier.nvme.paths"), (Texts{"/a \"b\"", "/ü"}));
  EXPECT_EQ(recipe.integers("tier.nvme.sizes"), (std::vector<std::int64_t>{1, 2}));
}

TEST(Recipe, AnIntLiteralIsAFloat) { EXPECT_EQ(parse(good_with("3e-4", "1")).number("optimizer.lr"), 1.0); }

TEST(Recipe, OptionalValuesMayBeAbsent) {
  const Recipe recipe = parse(rich_recipe);
  EXPECT_TRUE(recipe.has("optimizer.group.0.weight_decay"));
  EXPECT_FALSE(recipe.has("optimizer.group.1.weight_decay"));
  EXPECT_FALSE(recipe.has("nothing.like.it"));
  EXPECT_THROW(recipe.number("optimizer.group.1.weight_decay"), Error);
}

TEST(Recipe, RefusesWrongQuestions) {
  const Recipe recipe = parse(good_recipe);
  const auto code_of = [&](auto question) {
    try {
      question();
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::ok;
  };
  EXPECT_EQ(code_of([&] { recipe.integer("model.layer"); }), ErrorCode::internal);
  EXPECT_EQ(code_of([&] { recipe.integer("optimizer.lr"); }), ErrorCode::internal);
  EXPECT_EQ(code_of([&] { recipe.section("strategy.7"); }), ErrorCode::internal);
}

TEST(Recipe, SectionsOutliveIt) {
  std::vector<RecipeSection> strategies;
  { strategies = parse(rich_recipe).strategies(); }
  ASSERT_EQ(strategies.size(), 2u);
  EXPECT_EQ(strategies[0].plugin(), "data");
  EXPECT_EQ(strategies[0].text("axis"), "dp");
  EXPECT_EQ(strategies[1].path(), "strategy.1");
  EXPECT_EQ(strategies[1].integer("stage"), 1);
  EXPECT_EQ(strategies[1].origin("stage"), "r.toml:33");
  EXPECT_EQ(strategies[1].origin("axis"), "default");
}

TEST(Recipe, MeshAxesKeepTheirOrder) {
  Texts axes;
  const RecipeSection mesh = parse(good_recipe, {"mesh.pp=1"}).section("mesh");
  for (const auto& entry : mesh.entries())
    axes.push_back(entry.key + "=" + std::to_string(mesh.integer(entry.key)));
  EXPECT_EQ(axes, (Texts{"tp=2", "dp=4", "pp=1"}));
}

TEST(Recipe, AnEmptyObserverListSilencesTheDefault) {
  EXPECT_EQ(parse(good_recipe).sections("observer").size(), 1u);
  EXPECT_TRUE(parse("observer = []\n" + std::string(good_recipe)).sections("observer").empty());
  EXPECT_TRUE(parse(good_recipe, {"observer=[]"}).sections("observer").empty());
}

TEST(Overrides, LaterOnesWinOverFileAndEachOther) {
  const Recipe recipe =
      parse(rich_recipe, {"optimizer.lr=1", "optimizer.lr= 2e-3 ", "run.name=two words", "strategy.1.stage=2",
                          "optimizer.betas=0.8,0.9", "mesh.dp=2", "optimizer.schedule.kind=\"linear\"",
                          "data.shuffle=false", "tier.nvme.paths=[/x, '/y']", "tier.nvme.sizes.1=5"});
  EXPECT_EQ(recipe.number("optimizer.lr"), 2e-3);
  EXPECT_EQ(recipe.origin("optimizer.lr"), "--set optimizer.lr= 2e-3 ");
  EXPECT_EQ(recipe.text("run.name"), "two words");
  EXPECT_EQ(recipe.integer("strategy.1.stage"), 2);
  EXPECT_EQ(recipe.numbers("optimizer.betas"), (std::vector<double>{0.8, 0.9}));
  EXPECT_EQ(recipe.integer("mesh.dp"), 2);
  EXPECT_EQ(recipe.text("optimizer.schedule.kind"), "linear");
  EXPECT_FALSE(recipe.flag("data.shuffle"));
  EXPECT_EQ(recipe.texts("tier.nvme.paths"), (Texts{"/x", "/y"}));
  EXPECT_EQ(recipe.integers("tier.nvme.sizes"), (std::vector<std::int64_t>{1, 5}));
}

TEST(Overrides, CanChangePluginsAndAddItems) {
  const Recipe recipe =
      parse(good_recipe, {"optimizer.plugin=sgd", "optimizer.momentum=0.9", "strategy.0.plugin=zero",
                          "strategy.0.stage=3", "observer.0.color=false"});
  EXPECT_EQ(recipe.number("optimizer.momentum"), 0.9);
  ASSERT_EQ(recipe.strategies().size(), 1u);
  EXPECT_EQ(recipe.integer("strategy.0.stage"), 3);
  EXPECT_FALSE(recipe.flag("observer.0.color"));
}

struct BadOverride {
  std::string text, complaint;
};

class BadOverrides : public testing::TestWithParam<BadOverride> {};

TEST_P(BadOverrides, ArePointedAt) {
  const auto& [text, expected] = GetParam();
  EXPECT_EQ(complaint(rich_recipe, {text}), "--set " + text + ": error: " + expected);
}

INSTANTIATE_TEST_SUITE_P(
    All, BadOverrides,
    testing::Values(
        BadOverride{"optimizer.lr",
                    "the override has no '='; write section.key=value\n"
                    "   | --set optimizer.lr\n"
                    "   |       ^"},
        BadOverride{"lr=1",
                    "unknown key 'lr' outside any section; it belongs in [optimizer]\n   | --set lr=1\n   |  "
                    "     ^~"},
        BadOverride{"a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q=1",
                    "the override has a path of more than 16 names\n   | --set "
                    "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q=1\n   |       ^"},
        BadOverride{"run=1",
                    "wrong type for [run]: expected table, got '1'\n   | --set run=1\n   |           ^"},
        BadOverride{"run..x=1",
                    "the override has an empty name in its path\n   | --set run..x=1\n   |       ^"},
        BadOverride{"run.name.x=1",
                    "the override goes through a value that is neither table nor list, before 'x'\n"
                    "   | --set run.name.x=1\n"
                    "   |       ^"},
        BadOverride{"strategy.zero.stage=1",
                    "the override needs the index of an item where it says 'zero'\n"
                    "   | --set strategy.zero.stage=1\n"
                    "   |       ^"},
        BadOverride{"strategy.9.stage=1",
                    "the override names item '9' of a list of 2; items count from 0, and the next one "
                    "would be 2\n"
                    "   | --set strategy.9.stage=1\n"
                    "   |       ^"},
        BadOverride{"optimizer.learning_rate=1",
                    "unknown key 'learning_rate' in [optimizer]; did you mean 'lr'?\n"
                    "   | --set optimizer.learning_rate=1\n"
                    "   |       ^~~~~~~~~~~~~~~~~~~~~~~"},
        BadOverride{"strategy.1.stage=4",
                    "'stage' in [[strategy]] 'zero' is 4, outside its range 0..3\n"
                    "   | --set strategy.1.stage=4\n"
                    "   |                        ^"},
        BadOverride{"optimizer.betas=1,x",
                    "wrong type for 'betas' in [optimizer]: expected list of floats, got '1,x'\n"
                    "   | --set optimizer.betas=1,x\n"
                    "   |                       ^~~"},
        BadOverride{"optimizer.schedule=1",
                    "wrong type for 'schedule' in [optimizer]: expected table, got '1'\n"
                    "   | --set optimizer.schedule=1\n"
                    "   |                          ^"},
        BadOverride{"run.steps=",
                    "wrong type for 'steps' in [run]: expected int, got ''\n"
                    "   | --set run.steps=\n"
                    "   |                 ^"}));

TEST(Recipe, EditsGiveANewRecipe) {
  const Recipe recipe = parse(good_recipe);
  const Recipe edited = recipe.with("mesh.dp", "1").with("model.layers", "2");
  EXPECT_EQ(recipe.integer("mesh.dp"), 4);
  EXPECT_EQ(edited.integer("mesh.dp"), 1);
  EXPECT_EQ(edited.integer("model.layers"), 2);
  EXPECT_EQ(edited.origin("mesh.dp"), "set by prun: mesh.dp=1");
  EXPECT_THROW(recipe.with("mesh.dp", "0"), Error);
}

TEST(ResolvedToml, NamesEveryOrigin) {
  const std::string text = parse(good_recipe, {"optimizer.lr=1e-3"}).resolved_toml();
  EXPECT_NE(text.find("[optimizer]\nplugin = \"adamw\"                        # r.toml:18\n"
                      "lr = 0.001                              # --set optimizer.lr=1e-3\n"
                      "clip = 0.0                              # default\n"
                      "delays = []                             # default\n"
                      "schedule.kind = \"constant\"              # default\n"),
            std::string::npos)
      << text;
}

// Parsing what was printed gives the same values; printing again gives the same lines but for their origins.
void expect_round_trip(const Recipe& recipe) {
  const std::string printed = recipe.resolved_toml();
  const Recipe again = parse(printed);
  for (const RecipeSection& section : recipe.all_sections())
    for (const auto& entry : section.entries()) {
      const auto* const other = again.find(entry.path);
      ASSERT_NE(other, nullptr) << entry.path;
      EXPECT_EQ(other->value, entry.value) << entry.path;
    }
  EXPECT_EQ(again.all_sections().size(), recipe.all_sections().size());
  const Recipe third = parse(again.resolved_toml());
  EXPECT_EQ(third.resolved_toml(), again.resolved_toml());
}

TEST(ResolvedToml, RoundTrips) {
  expect_round_trip(parse(good_recipe));
  expect_round_trip(parse(rich_recipe));
  expect_round_trip(parse("observer = []\n" + rich_recipe));
  expect_round_trip(parse(rich_recipe, {"run.name=a\"b\\c\td\ne", "optimizer.lr=1e-300", "mesh.zz=7",
                                        "optimizer.clip=123456789012345678", "tier.nvme.paths=[]"}));
}

TEST(Recipe, ParsesFast) {
  using Clock = std::chrono::steady_clock;
  parse(rich_recipe);
  auto best = Clock::duration::max();
  for (int i = 0; i < 20; ++i) {
    const auto start = Clock::now();
    parse(rich_recipe);
    best = std::min(best, Clock::now() - start);
  }
  const double milliseconds = std::chrono::duration<double, std::milli>(best).count();
  RecordProperty("milliseconds", std::to_string(milliseconds));
  EXPECT_LT(milliseconds, 5.0);
}

TEST(PluginTables, GiveOptionsToAPluginByItsName) {
  const std::string text =
      std::string(good_recipe) +
      "[comm]\ndp = \"nccl\"\n[comm.ucx]\ntransports = \"tcp\"\n[schedule.waves]\nwave = 3\n";
  const Recipe recipe = parse(text, {"op.square.power=2"});
  EXPECT_EQ(recipe.plugin_table("schedule", "waves")->integer("wave"), 3);
  EXPECT_EQ(recipe.plugin_table("schedule", "waves")->origin("wave"), "r.toml:29");
  EXPECT_EQ(recipe.plugin_table("comm", "ucx")->text("transports"), "tcp");
  EXPECT_EQ(recipe.plugin_table("op", "square")->integer("power"), 2);
  EXPECT_EQ(recipe.text("comm.dp"), "nccl");
  EXPECT_EQ(recipe.integer("schedule.waves.wave"), 3);
  EXPECT_FALSE(recipe.plugin_table("schedule", "1f1b"));
  EXPECT_FALSE(recipe.plugin_table("comm", "nccl"));
  EXPECT_EQ(recipe.with("schedule.waves.wave", "5").integer("schedule.waves.wave"), 5);
}

TEST(PluginTables, SurviveBeingWritten) {
  const Recipe recipe =
      parse(good_recipe, {"comm.dp=ucx", "comm.ucx.transports=tcp", "schedule.waves.wave=4"});
  const Recipe again = parse(recipe.resolved_toml());
  EXPECT_EQ(again.text("comm.dp"), "ucx");
  EXPECT_EQ(again.text("comm.ucx.transports"), "tcp");
  EXPECT_EQ(again.integer("schedule.waves.wave"), 4);
}

TEST(PluginTables, AreCheckedAsSectionsAre) {
  const auto problem = [](const std::string& more) { return complaint(good_recipe + more); };
  EXPECT_NE(problem("[schedule.waves]\nwvae = 3\n")
                .find("unknown key 'wvae' in [schedule.waves]; did you mean 'wave'?"),
            std::string::npos);
  EXPECT_NE(problem("[schedule.waves]\nwave = 9\n").find("in [schedule.waves]"), std::string::npos);
  EXPECT_NE(problem("[schedule.wavse]\n").find("unknown schedule plugin 'wavse'; did you mean 'waves'?"),
            std::string::npos);
  EXPECT_NE(problem("[op.square]\n").find("missing required key 'power' in [op.square]"), std::string::npos);
  EXPECT_NE(problem("[schedule]\nwave = 3\n").find("unknown key 'wave' in [schedule]"), std::string::npos);
}

}  // namespace
}  // namespace prun::test
