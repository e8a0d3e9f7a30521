// Every rank's peak is its plan plus what was stated for its process, within 3 %. PRUN_SEED repeats a
// drawing, PRUN_LONG trains 30 drawn recipes instead of 3.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <optional>

#include "base/json.hpp"
#include "binary.hpp"
#include "support/assembly_fixture.hpp"
#include "support/drawn_recipe.hpp"
#include "support/sanitized.hpp"
#include "train/assemble/process_memory.hpp"

namespace prun::test {
namespace {

namespace fs = std::filesystem;

constexpr double tolerance = 0.03;

std::vector<RankMemory> reported_memory(const fs::path& folder) {
  std::ifstream log(folder / "log.jsonl");
  std::vector<RankMemory> ranks;
  for (std::string line; std::getline(log, line);) {
    const JsonValue record = parse_json(line, "log");
    if (record.at("type").as_string() != "finish") continue;
    for (const JsonValue& rank : record.at("memory").as_array())
      ranks.push_back({rank.at("plan_bytes").as_int64(), rank.at("process_bytes").as_int64(),
                       rank.at("peak_bytes").as_int64()});
  }
  return ranks;
}

// Trains it with real processes. The largest peak that was reported is the one that the system counted.
std::vector<RankMemory> train(const std::string& recipe) {
  const fs::path folder = temporary_folder(), out = folder / "memory";
  fs::remove_all(out);
  std::ofstream(folder / "memory.toml") << recipe;
  const Result run = prun({(folder / "memory.toml").string(), "--plugin-path", PRUN_TEST_PLUGINS "/test",
                           "--set", "run.out=" + out.string()});
  EXPECT_EQ(run.code, 0) << run.out << recipe;
  const std::vector<RankMemory> ranks = reported_memory(out);
  std::int64_t largest = 0;
  for (const RankMemory& rank : ranks) largest = std::max(largest, rank.peak_bytes);
  // The system counts by thread and adds up now and then.
  const double slack = 0.01 * static_cast<double>(run.peak_bytes) + (1 << 20);
  EXPECT_NEAR(static_cast<double>(largest), static_cast<double>(run.peak_bytes), slack) << recipe;
  return ranks;
}

// The system maps code in pieces as large as its cache happens to hold. The most of that is stated: so much
// of it may not be there.
constexpr std::int64_t mapped_beside = std::int64_t{3} << 20;

// 0.01: one percent more than was said.
double deviation(const RankMemory& rank) {
  const std::int64_t stated = rank.plan_bytes + rank.process_bytes;
  const std::int64_t unmapped = std::clamp<std::int64_t>(stated - rank.peak_bytes, 0, mapped_beside);
  return static_cast<double>(rank.peak_bytes + unmapped) / static_cast<double>(stated) - 1;
}

std::string to_text(const RankMemory& rank) {
  constexpr double mib = 1 << 20;
  char text[160];
  std::snprintf(text, sizeof text, "plan %.1f MiB, process %.1f MiB, peak %.1f MiB: %+.2f %%",
                static_cast<double>(rank.plan_bytes) / mib, static_cast<double>(rank.process_bytes) / mib,
                static_cast<double>(rank.peak_bytes) / mib, 100 * deviation(rank));
  return text;
}

TEST(Memory, OneRankHasItsPlanAndOneConstant) {
  if (sanitized) GTEST_SKIP() << "a sanitizer's shadow memory counts as ours";
  struct Size {
    int layers, hidden, batch, seq;
  };
  for (const Size& size : {Size{4, 128, 4, 64}, Size{2, 256, 4, 64}, Size{4, 256, 4, 128},
                           Size{6, 256, 8, 128}, Size{8, 384, 4, 256}}) {
    const Recipe recipe = tiny_recipe(
        {"run.steps=3", "model.layers=" + std::to_string(size.layers),
         "model.hidden=" + std::to_string(size.hidden), "batch.global=" + std::to_string(size.batch),
         "batch.micro=" + std::to_string(size.batch), "model.seq=" + std::to_string(size.seq)});
    const std::vector<RankMemory> ranks = train(recipe.resolved_toml());
    ASSERT_EQ(ranks.size(), 1u);
    const ProcessNeed need = Assembly(recipe, plugins()).process_need();
    EXPECT_EQ(need.save_bytes, std::min(need.saved_bytes, least_save_bytes));  // any run may be stopped
    EXPECT_EQ(ranks[0].process_bytes,
              base_process_bytes + need.call_bytes + need.tensor_bytes + need.save_bytes);
    EXPECT_LT(std::abs(deviation(ranks[0])), tolerance) << to_text(ranks[0]);
  }
}

// What is kept of calls and tensors grows with layers and microbatches, and the plan's small tensors do not.
TEST(Memory, ManyLayersAndMicrobatchesNeedNoMoreThanIsStated) {
  if (sanitized) GTEST_SKIP() << "a sanitizer's shadow memory counts as ours";
  for (const char* global : {"2", "32"}) {
    const Recipe recipe = tiny_recipe({"run.steps=3", "model.layers=200", "model.hidden=32", "model.seq=16",
                                       "batch.micro=2", std::string("batch.global=") + global});
    const std::vector<RankMemory> ranks = train(recipe.resolved_toml());
    ASSERT_EQ(ranks.size(), 1u);
    EXPECT_LE(ranks[0].peak_bytes, ranks[0].plan_bytes + ranks[0].process_bytes) << to_text(ranks[0]);
    EXPECT_GT(deviation(ranks[0]), -tolerance) << to_text(ranks[0]);
  }
}

// State, parameters and gradients that lie in the host's memory, and come to the device in turn.
TEST(Memory, WhatLiesOnTheHostIsWhatWasPlanned) {
  if (sanitized) GTEST_SKIP() << "a sanitizer's shadow memory counts as ours";
  const Recipe recipe = tiny_recipe(
      {"run.steps=3", "model.layers=6", "model.hidden=384", "batch.order=breadth_first"},
      "[[strategy]]\nplugin = 'offload'\noptimizer = 'host'\nparameters = 'host'\ngradients = 'host'\n"
      "activations = 'host'\n");
  const std::vector<RankMemory> ranks = train(recipe.resolved_toml());
  ASSERT_EQ(ranks.size(), 1u);
  EXPECT_GT(ranks[0].plan_bytes, std::int64_t{150} << 20);
  EXPECT_LT(std::abs(deviation(ranks[0])), tolerance) << to_text(ranks[0]);
}

// Of text that is one token all positions choose the same experts, which are one rank's: it computes all rows
// in the memory that was planned.
TEST(Memory, ExpertsThatEveryPositionChoosesHaveRoom) {
  if (sanitized) GTEST_SKIP() << "a sanitizer's shadow memory counts as ours";
  const fs::path text = temporary_folder() / "one.txt";
  std::ofstream(text) << std::string(65536, 'a');
  const Recipe recipe =
      tiny_recipe({"run.steps=3", "model.plugin=llama", "model.layers=4", "model.hidden=256",
                   "model.experts=8", "model.choices=2", "model.expert_ffn=256", "model.vocab=256",
                   "model.seq=256", "batch.global=16", "batch.micro=8", "comm.default=ucx",
                   "data.plugin=text", "data.path=" + text.string(), "data.shuffle=false"},
                  data_parallel(2) + "[[strategy]]\nplugin = 'experts'\n");
  const std::vector<RankMemory> ranks = train(recipe.resolved_toml());
  ASSERT_EQ(ranks.size(), 2u);
  for (const RankMemory& rank : ranks) {
    EXPECT_GT(rank.plan_bytes, std::int64_t{60} << 20);
    EXPECT_LT(deviation(rank), tolerance) << to_text(rank);
  }
}

// Of any number of ranks on a host: threads and workspaces are those that they will have.
TEST(Memory, APlanSaysWhatTheRunSays) {
  for (const int ranks : {1, 2}) {
    const std::string recipe =
        tiny_recipe({"run.steps=1", "device.threads=0", "batch.micro=1", "comm.default=ucx"},
                    ranks > 1 ? data_parallel(ranks) : "")
            .resolved_toml();
    const std::vector<RankMemory> trained = train(recipe);
    ASSERT_EQ(trained.size(), static_cast<std::size_t>(ranks));
    const Result planned = prun({"plan", (temporary_folder() / "memory.toml").string(), "--json"});
    const JsonValue plan = parse_json(planned.out, "plan");
    EXPECT_EQ(plan.at("memory_bytes").as_int64(), trained[0].plan_bytes);
    EXPECT_EQ(plan.at("process_bytes").as_int64(), trained[0].process_bytes);
  }
}

// The plugin `text` holds all of it, once more for validation.
TEST(Memory, TextThatIsHeldIsStated) {
  const fs::path text = temporary_folder() / "held.txt";
  std::ofstream(text) << std::string(std::size_t{24} << 20, 'a');
  const std::vector<std::string> sets = {
      "run.steps=3",    "data.plugin=text", "data.path=" + text.string(), "model.vocab=256",
      "model.layers=4", "model.hidden=256", "data.shuffle=false"};
  const Recipe recipe = tiny_recipe(sets);
  const std::vector<RankMemory> ranks = train(recipe.resolved_toml());
  ASSERT_EQ(ranks.size(), 1u);
  const ProcessNeed need = Assembly(recipe, plugins()).process_need();
  const std::int64_t without = need.bytes - (24 << 20);
  EXPECT_EQ(without, base_process_bytes + need.call_bytes + need.tensor_bytes + need.save_bytes);
  EXPECT_EQ(ranks[0].process_bytes, need.bytes);
  EXPECT_TRUE(sanitized || std::abs(deviation(ranks[0])) < tolerance) << to_text(ranks[0]);
  const Recipe evaluates = recipe.with("data.validation", "0.5").with("eval.every", "1");
  EXPECT_GE(Assembly(evaluates, plugins()).process_bytes(), without + (48 << 20));
}

// What is written beside training is copied first.
TEST(Memory, ARunThatSavesHasItsCopyBesides) {
  if (sanitized) GTEST_SKIP() << "a sanitizer's shadow memory counts as ours";
  for (const std::string& layout : {std::string(), data_parallel(2)}) {
    const Recipe recipe =
        tiny_recipe({"run.steps=3", "run.save_every=1", "model.layers=6", "model.hidden=384",
                     "batch.global=8", "model.seq=64", "comm.default=ucx"},
                    layout);
    const std::vector<RankMemory> ranks = train(recipe.resolved_toml());
    const std::int64_t without = Assembly(recipe.with("run.save_every", "0"), plugins()).process_bytes();
    for (const RankMemory& rank : ranks) {
      EXPECT_GT(rank.process_bytes,
                without + (std::int64_t{50} << 20) / static_cast<std::int64_t>(ranks.size()));
      EXPECT_LT(std::abs(deviation(rank)), tolerance) << to_text(rank);
    }
  }
}

// However little it passes through, which is there from the start; and that of a run that is only stopped.
TEST(Memory, ASaveTakesNoMoreThanItsBuffer) {
  if (sanitized) GTEST_SKIP() << "a sanitizer's shadow memory counts as ours";
  for (const char* every : {"1", "0"}) {
    const Recipe recipe =
        tiny_recipe({"run.steps=3", std::string("run.save_every=") + every, "run.save_memory=16MiB",
                     "model.layers=6", "model.hidden=384", "batch.global=8", "model.seq=64",
                     "precision.compute=bf16", "precision.master=split"});
    const ProcessNeed need = Assembly(recipe, plugins()).process_need();
    EXPECT_EQ(need.save_bytes, least_save_bytes);
    EXPECT_GT(need.saved_bytes, 4 * least_save_bytes);
    const std::vector<RankMemory> ranks = train(recipe.resolved_toml());
    ASSERT_EQ(ranks.size(), 1u);
    EXPECT_LT(deviation(ranks[0]), tolerance) << to_text(ranks[0]);
  }
}

// What is read of its files passes through little memory, wherever they lie.
TEST(Memory, ARunThatGoesOnNeedsNoMoreThanOneThatBegins) {
  if (sanitized) GTEST_SKIP() << "a sanitizer's shadow memory counts as ours";
  const std::vector<std::string> sets = {"model.layers=6", "model.hidden=384", "batch.global=8",
                                         "model.seq=64"};
  for (const fs::path& where : {fs::temp_directory_path(), fs::path("/dev/shm")}) {
    if (!fs::is_directory(where) || fs::space(where).available < std::uintmax_t{1} << 30) continue;
    const fs::path first = where / ("prun-test-first-" + std::to_string(::getpid()));
    std::vector<std::string> saving = sets;
    saving.insert(saving.end(), {"run.steps=2", "run.save_every=2", "run.out=" + first.string()});
    std::ofstream(temporary_folder() / "first.toml") << tiny_recipe(saving).resolved_toml();
    const Result run = prun({(temporary_folder() / "first.toml").string()});
    EXPECT_EQ(run.code, 0) << run.out;
    std::vector<std::string> resuming = sets;
    resuming.insert(resuming.end(), {"run.steps=4", "run.resume=" + first.string()});
    const std::vector<RankMemory> ranks = train(tiny_recipe(resuming).resolved_toml());
    fs::remove_all(first);
    ASSERT_EQ(ranks.size(), 1u) << where;
    EXPECT_LT(std::abs(deviation(ranks[0])), tolerance) << where << ": " << to_text(ranks[0]);
  }
}

// Into where state lives, a piece at a time: memory of the host, or a drive.
TEST(Memory, WhatARunStartsFromPassesThroughLittle) {
  if (sanitized) GTEST_SKIP() << "a sanitizer's shadow memory counts as ours";
  const std::string first = (temporary_folder() / "starts-from").string();
  const std::vector<std::string> sets = {
      "model.layers=6",         "model.hidden=384",       "batch.global=4",           "model.seq=64",
      "precision.compute=bf16", "precision.master=split", "batch.order=breadth_first"};
  const auto more = [&](std::vector<std::string> list) {
    list.insert(list.end(), sets.begin(), sets.end());
    return list;
  };
  std::ofstream(temporary_folder() / "first.toml")
      << tiny_recipe(more({"run.steps=1", "run.save_every=1", "run.out=" + first})).resolved_toml();
  const Result run = prun({(temporary_folder() / "first.toml").string()});
  ASSERT_EQ(run.code, 0) << run.out;
  const std::string host = "[[strategy]]\nplugin = 'offload'\noptimizer = 'host'\nparameters = 'host'\n",
                    drive =
                        "[[strategy]]\nplugin = 'offload'\noptimizer = 'nvme'\nparameters = 'nvme'\n"
                        "[tier.nvme]\npaths = ['" +
                        temporary_folder().string() + "']\n";
  for (const std::string& offload : {host, drive})
    for (const char* from : {"run.resume=", "model.init="}) {
      const std::string steps = from == std::string("run.resume=") ? "run.steps=2" : "run.steps=1";
      const std::vector<RankMemory> ranks =
          train(tiny_recipe(more({steps, from + first}), offload).resolved_toml());
      ASSERT_EQ(ranks.size(), 1u);
      EXPECT_LT(deviation(ranks[0]), tolerance) << from << offload << to_text(ranks[0]);
    }
}

// Nothing if it is refused because it does not fit.
std::optional<std::int64_t> plan_bytes(std::int64_t vocab) {
  try {
    return Assembly(tiny_recipe({"model.hidden=4096", "model.vocab=" + std::to_string(vocab)}), plugins())
        .plan()
        .layout.memory.total();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the plan needs"), std::string::npos) << error.what();
    return std::nullopt;
  }
}

TEST(Memory, ThePlanLeavesTheProcessItsPartOfTheMachine) {
  DeviceInfo info;
  raise(cpu_device(1)->info(&info));
  const std::int64_t row = std::int64_t{1} << 20;
  std::int64_t fits = 1000, too_large = info.memory_bytes / (4096 * 16) + 1;
  ASSERT_TRUE(plan_bytes(fits));
  ASSERT_FALSE(plan_bytes(too_large));
  while (too_large - fits > 1) {
    const std::int64_t middle = fits + (too_large - fits) / 2;
    (plan_bytes(middle) ? fits : too_large) = middle;
  }
  const std::int64_t left = info.memory_bytes - *plan_bytes(fits);
  EXPECT_GE(left, base_process_bytes + least_save_bytes);
  EXPECT_LT(left, base_process_bytes + least_save_bytes + 2 * row);
}

// Each for itself would fit.
TEST(Memory, RanksThatDoNotFitTogetherAreRefusedBeforeAnyStarts) {
  DeviceInfo info;
  raise(cpu_device(1)->info(&info));
  // Of each row of the table: the number, its gradient, two moments.
  const std::int64_t hidden = 4096, rows = info.memory_bytes / 4 / (hidden * 16);
  const Recipe recipe = tiny_recipe(
      {"model.hidden=4096", "model.vocab=" + std::to_string(rows), "batch.global=32"}, data_parallel(8));
  const std::string file = (temporary_folder() / "together.toml").string();
  std::ofstream(file) << recipe.resolved_toml();
  EXPECT_EQ(prun({"check", file}).code, 0);
  const Result run = prun({file});
  EXPECT_EQ(run.code, 2);
  EXPECT_NE(run.out.find("the 8 ranks together need"), std::string::npos) << run.out;
}

// Large enough to tell, and small enough for the machine that tests.
bool is_of_use(const Assembly& assembly) {
  constexpr std::int64_t least = std::int64_t{100} << 20, most = std::int64_t{8} << 30;
  std::int64_t all = 0, smallest = most;
  for (const int rank : assembly.mesh().ranks()) {
    const std::int64_t bytes = assembly.plan_of(rank).layout.memory.total();
    smallest = std::min(smallest, bytes);
    all += bytes;
  }
  return smallest >= least && all <= most;
}

// Whether it would train and tell something; a refusal must be one of those that are in order.
bool can_tell(const std::string& text) {
  try {
    return is_of_use(Assembly(Recipe::parse(text, "drawn.toml", {}, plugins().catalog()), plugins()));
  } catch (const Error& error) {
    EXPECT_TRUE(is_permitted_refusal(error.what())) << text << error.what();
    return false;
  }
}

TEST(Memory, EveryRankOfADrawnRecipeHasItsPlanAndWhatWasStated) {
  if (sanitized) GTEST_SKIP() << "a sanitizer's shadow memory counts as ours";
  const unsigned first = first_seed();
  std::printf("seed %u (PRUN_SEED=%u repeats)\n", first, first);
  const unsigned wanted = std::getenv("PRUN_LONG") ? 30 : 3;
  unsigned trained = 0, drawn = 0;
  double worst = 0;
  for (; trained < wanted && drawn < 20 * wanted; ++drawn) {
    const std::string text = drawn_recipe(first + drawn, Scale::large);
    if (!can_tell(text)) continue;
    ++trained;
    for (const RankMemory& rank : train(text)) {
      EXPECT_LT(std::abs(deviation(rank)), tolerance)
          << "PRUN_SEED=" << first + drawn << ": " << to_text(rank) << "\n"
          << text;
      if (std::abs(deviation(rank)) <= std::abs(worst)) continue;
      worst = deviation(rank);
      std::printf("worst so far (PRUN_SEED=%u): %s\n", first + drawn, to_text(rank).c_str());
    }
  }
  std::printf("%u of %u draws were large enough to tell\n", trained, drawn);
  EXPECT_EQ(trained, wanted);
}

}  // namespace
}  // namespace prun::test
