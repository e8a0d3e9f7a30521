// Where a plan does not fit: the changes that prun names make it fit, as a user would type them.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/json.hpp"
#include "base/text.hpp"
#include "binary.hpp"
#include "search/what_fits.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test {
namespace {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;

std::string recipe_file(const Words& sets) {
  const fs::path path = temporary_folder() / "fits.toml";
  Words all = {"device.threads=2"};  // each thread has memory of its own
  all.insert(all.end(), sets.begin(), sets.end());
  std::ofstream(path) << tiny_recipe(all).resolved_toml();
  return path.string();
}

std::int64_t plan_bytes(const std::string& file) {
  return parse_json(prun({"plan", file, "--json"}).out, "plan").at("memory_bytes").as_int64();
}

// "  --set a=b --set c=d   (1.00 MiB of memory)" of each line behind the heading.
std::vector<Words> changes_in(const std::string& out) {
  std::vector<Words> changes;
  std::istringstream lines(out.substr(std::min(out.size(), out.find("What would fit:"))));
  std::string line;
  for (std::getline(lines, line); std::getline(lines, line) && line.starts_with("  --set ");) {
    std::istringstream words(line.substr(0, line.find("   (")));
    Words change;
    for (std::string word; words >> word;) change.push_back(word);
    changes.push_back(std::move(change));
  }
  return changes;
}

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

const Words large = {"model.layers=4", "batch.global=16", "batch.micro=16"};

TEST(WhatFits, EachChangeThatIsNamedMakesItFit) {
  const std::string file = recipe_file(large);
  const Words limited = {"--set", "device.memory=" + std::to_string(plan_bytes(file) * 7 / 10)};
  const Result check = prun(with({"check", file}, limited));
  EXPECT_EQ(check.code, 2);
  const std::vector<Words> changes = changes_in(check.out);
  ASSERT_GE(changes.size(), 2U) << check.out;
  ASSERT_LE(changes.size(), 3U) << check.out;
  for (const Words& change : changes) {
    const Result changed = prun(with(with({"check", file}, limited), change));
    EXPECT_EQ(changed.code, 0) << changed.out;
  }
}

TEST(WhatFits, PlanAndTheRefusalAtStartSayItToo) {
  const std::string file = recipe_file(large);
  const Words limited = {"--set", "device.memory=" + std::to_string(plan_bytes(file) * 7 / 10)};
  for (const Words& command : {Words{"plan", file}, Words{file}}) {
    const Result result = prun(with(command, limited));
    EXPECT_EQ(result.code, 2);
    EXPECT_GE(changes_in(result.out).size(), 2U) << result.out;
  }
}

// Nothing but sharing helps here: with a microbatch of one sequence, parameters and their state are most of
// it.
TEST(WhatFits, RanksShareWhatTheyAllHave) {
  const std::string file = recipe_file(
      {"mesh.dp=2", "strategy.0.plugin=data", "batch.global=2", "batch.micro=1", "model.vocab=4096"});
  const Words limited = {"--set", "device.memory=" + std::to_string(plan_bytes(file) * 9 / 10)};
  const Result check = prun(with({"check", file}, limited));
  EXPECT_EQ(check.code, 2);
  EXPECT_NE(check.out.find("--set strategy.1.plugin=zero --set strategy.1.axis=dp --set strategy.1.stage="),
            std::string::npos)
      << check.out;
  for (const Words& change : changes_in(check.out))
    EXPECT_EQ(prun(with(with({"check", file}, limited), change)).code, 0) << change.back();
}

// Half of the microbatch is enough for one of the two ranks, and not for both together.
TEST(WhatFits, RanksOfAHostHaveRoomTogether) {
  const Words two = {"mesh.dp=2",        "strategy.0.plugin=data", "model.layers=4",  "model.hidden=64",
                     "batch.global=512", "batch.micro=256",        "device.threads=1"};
  const Assembly whole(tiny_recipe(two), plugins());
  const auto plan = static_cast<double>(whole.plan().layout.memory.total());
  const double limit = static_cast<double>(whole.process_bytes()) + 0.9 * plan;
  const std::string file = recipe_file(two);
  const Words limited = {"--set", format("device.plan_gib=%.9f", limit / (1 << 30))};
  const Result check = prun(with({"check", file}, limited));
  EXPECT_EQ(check.code, 2);
  const std::vector<Words> changes = changes_in(check.out);
  ASSERT_FALSE(changes.empty()) << check.out;
  for (const Words& change : changes) {
    const Result changed = prun(with(with({"check", file}, limited), change));
    EXPECT_EQ(changed.code, 0) << changed.out;
    EXPECT_EQ(changed.out.find("ranks of a host together need"), std::string::npos) << changed.out;
  }
}

// Where there is no time for all, the most that goes together is planned, and named where it fits.
TEST(WhatFits, TheStrongestIsTriedInTheEnd) {
  const Recipe recipe =
      tiny_recipe(with(large, {"mesh.dp=4", "batch.micro=4", "strategy.0.plugin=data", "device.threads=1"}));
  const std::int64_t bytes = Assembly(recipe, plugins()).plan().layout.memory.total();
  const Recipe limited = recipe.with("device.memory", std::to_string(bytes * 7 / 10));
  const WhatFits found = what_fits(
      limited, plugins(), [](const Assembly&) {}, std::chrono::milliseconds(0));
  ASSERT_EQ(found.changes.size(), 1u) << to_text(found);
  EXPECT_GT(found.left, 0);
  Recipe changed = limited;
  for (const auto& [key, value] : found.changes[0].change) changed = changed.with(key, value);
  EXPECT_NO_THROW(Assembly(changed, plugins())) << to_text(found);
}

// As for a GPU whose host has room for the state of the optimizer and not for activations: neither of two
// changes is enough, nor the most of both.
TEST(WhatFits, TwoChangesThatAreNotTheStrongestAreTriedTogether) {
  const auto fits = [](const Assembly& assembly) {
    const Recipe& recipe = assembly.recipe();
    bool recomputes = false, state_leaves = false, more_leaves = false;
    for (const RecipeSection& strategy : recipe.strategies()) {
      recomputes |= strategy.plugin() == "recompute";
      if (strategy.plugin() != "offload") continue;
      state_leaves = strategy.text("optimizer") == "host";
      more_leaves = strategy.text("gradients") == "host";
    }
    if (!recomputes || !state_leaves || more_leaves) throw_error(ErrorCode::bad_input, "no room");
  };
  const WhatFits found = what_fits(tiny_recipe({"precision.master=split", "precision.compute=bf16"}),
                                   plugins(), fits, std::chrono::minutes(1));
  ASSERT_FALSE(found.changes.empty()) << to_text(found);
  const std::string text = to_text(found);
  EXPECT_NE(text.find("=recompute"), std::string::npos) << text;
  EXPECT_NE(text.find(".optimizer=host"), std::string::npos) << text;
}

// Of products in fp8, which change no number by it.
TEST(WhatFits, CodesForBackwardAreTried) {
  const Words wide = {"model.hidden=256",       "model.heads=2",        "model.ffn=256",
                      "model.seq=128",          "batch.micro=1",        "batch.global=4",
                      "precision.compute=bf16", "strategy.0.plugin=fp8"};
  const Assembly codes(tiny_recipe(with(wide, {"strategy.0.activations=true"})), plugins());
  const Recipe limited =
      tiny_recipe(wide).with("device.memory", std::to_string(codes.plan().layout.memory.total()));
  const WhatFits found = what_fits(
      limited, plugins(), [](const Assembly&) {}, std::chrono::minutes(1));
  const RecipeChange wanted = {{"strategy.0.activations", "true"}};
  EXPECT_TRUE(std::any_of(found.changes.begin(), found.changes.end(), [&](const FittingChange& each) {
    return each.change == wanted && each.exact;
  })) << to_text(found);
}

TEST(WhatFits, NothingFound) {
  const Result check = prun({"check", recipe_file(large), "--set", "device.memory=1KiB"});
  EXPECT_EQ(check.code, 2);
  EXPECT_NE(check.out.find("changes that were planned makes it fit"), std::string::npos) << check.out;
  EXPECT_NE(check.out.find("device.memory"), std::string::npos) << check.out;
  EXPECT_NE(check.out.find("prun tune RECIPE"), std::string::npos) << check.out;
}

}  // namespace
}  // namespace prun::test
