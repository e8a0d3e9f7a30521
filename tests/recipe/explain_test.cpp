// Texts about options.
#include "explain/explain.hpp"

#include <gtest/gtest.h>

#include "recipe/fixture.hpp"

namespace prun::test {
namespace {

using recipe::explain;
using recipe::reference_markdown;
using recipe::reference_table;

std::string refusal(std::string_view path) {
  try {
    return explain(path, catalog());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_found);
    return error.what();
  }
}

TEST(Explain, TellsMeaningTypeDefaultRangeAndDeclarer) {
  EXPECT_EQ(explain("model.heads", catalog()),
            "model.heads\n"
            "  Attention heads\n"
            "  int, default 12, 1..1024\n"
            "  declared by model plugin 'gpt'\n");
  EXPECT_EQ(explain("optimizer.schedule.kind", catalog()),
            "optimizer.schedule.kind\n"
            "  Learning rate schedule after warmup; wsd: constant until schedule.decay steps before the end; "
            "steps, points: custom, set by schedule.at and schedule.factors\n"
            "  choice, default \"constant\", one of constant, linear, cosine, wsd, inverse-sqrt, polynomial, "
            "steps, "
            "points\n"
            "  declared by core\n");
}

TEST(Explain, NamesEveryPluginThatDeclaresIt) {
  const std::string text = explain("strategy.0.axis", catalog());
  EXPECT_NE(text.find("declared by strategy plugin 'data'"), std::string::npos);
  EXPECT_NE(text.find("declared by strategy plugin 'zero'"), std::string::npos);
  EXPECT_NE(explain("mesh.dp", catalog()).find("mesh.dp\n  Size of this axis"), std::string::npos);
}

TEST(Explain, ListsSectionsAndTables) {
  EXPECT_EQ(explain("batch", catalog())
                .find("[batch]\n  Batch size, and how it is divided into microbatches.\nbatch.global\n"),
            0u);
  const std::string schedule = explain("optimizer.schedule", catalog());
  EXPECT_NE(schedule.find("optimizer.schedule.warmup"), std::string::npos);
  EXPECT_EQ(schedule.find("optimizer.lr"), std::string::npos);
  EXPECT_NE(explain("optimizer.group.match", catalog()).find("Glob pattern"), std::string::npos);
}

TEST(Explain, AnswersForAPluginByItsNameWhateverItsKind) {
  EXPECT_EQ(
      explain("zero.stage", catalog()),
      "strategy.stage\n  What is sharded\n  int, required, 0..3\n  declared by strategy plugin 'zero'\n");
  const std::string zero = explain("zero", catalog());
  EXPECT_EQ(
      zero.find(
          "strategy plugin 'zero'\n  The zero strategy\n  [[strategy]] plugin = \"zero\"\nstrategy.axis\n"),
      0u)
      << zero;
  EXPECT_EQ(zero.find("strategy plugin 'data'"), std::string::npos);
  EXPECT_EQ(explain("gpt", catalog()).find("model plugin 'gpt'\n"), 0u);
  EXPECT_EQ(explain("1f1b", catalog()),
            "schedule plugin '1f1b'\n  The 1f1b schedule\n  options in [schedule.1f1b]\n");
  const std::string square = explain("square", catalog());
  EXPECT_NE(square.find("options in [op.square]\nop.square.power\n"), std::string::npos) << square;
  EXPECT_NE(explain("comm.ucx.transports", catalog()).find("declared by comm plugin 'ucx'"),
            std::string::npos);
  EXPECT_EQ(explain("comm.ucx.transports", catalog()), explain("ucx.transports", catalog()));
}

TEST(Explain, AnswersForASectionAndAPluginOfOneName) {
  const std::string data = explain("data", catalog());
  EXPECT_EQ(data.find("[data]\n"), 0u);
  EXPECT_NE(data.find("strategy plugin 'data'\n  The data strategy\n"), std::string::npos) << data;
  EXPECT_NE(explain("data.axis", catalog()).find("declared by strategy plugin 'data'"), std::string::npos);
}

TEST(Explain, SuggestsWhenThereIsNone) {
  EXPECT_EQ(refusal("model.haeds"), "no option 'haeds' is declared in [model]; did you mean 'heads'?");
  EXPECT_EQ(refusal("modle.heads"),
            "no section of a recipe and no plugin is called 'modle'; did you mean [model]?");
  EXPECT_EQ(refusal("zreo.stage"),
            "no section of a recipe and no plugin is called 'zreo'; did you mean 'zero'?");
  EXPECT_EQ(refusal("zero.stagee"),
            "no option 'stagee' is declared in strategy plugin 'zero'; did you mean 'stage'?");
}

TEST(Explain, OfARecipeAddsValueAndOrigin) {
  const Recipe recipe = parse(good_recipe, {"model.heads=4"});
  EXPECT_EQ(explain("model.heads", recipe),
            "model.heads\n"
            "  Attention heads\n"
            "  int, default 12, 1..1024\n"
            "  declared by model plugin 'gpt'\n"
            "  value 4, from --set model.heads=4\n");
  EXPECT_NE(explain("optimizer", recipe).find("value 0.0003, from r.toml:19"), std::string::npos);
  EXPECT_EQ(explain("gpt.heads", recipe), explain("model.heads", recipe));
  EXPECT_THROW(explain("model.haeds", recipe), Error);
}

TEST(Reference, IsATableThatSurvivesBars) {
  const Schema schema = parse_schema("a | choice | x | x,y | x | y\nb | int | required | 1.. | B\n", "x");
  EXPECT_EQ(reference_table(schema),
            "| key | type | default | range | meaning |\n"
            "|---|---|---|---|---|\n"
            "| `a` | choice | `\"x\"` | `x`, `y` | x \\| y |\n"
            "| `b` | int | required | `1..` | B |\n");
}

TEST(Reference, HasEverySectionAndPlugin) {
  const std::string text = reference_markdown(catalog());
  for (const char* part :
       {"## `[run]`", "## `[[optimizer.group]]`", "### model plugin `gpt`",
        "| `rope_theta` | float | `10000.0` | `1..1e9` |", "### device plugin `cpu`\n\nNo options."})
    EXPECT_NE(text.find(part), std::string::npos) << part;
}

}  // namespace
}  // namespace prun::test
