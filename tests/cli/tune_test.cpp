// prun tune and run.layout = "auto" as a user sees them, by a cost table of made-up rates.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/json.hpp"
#include "binary.hpp"
#include "estimate/costs_file.hpp"
#include "support/assembly_fixture.hpp"
#include "support/built_plugins.hpp"

namespace prun::test {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

// `within`: bytes a second between ranks.
fs::path costs_with(const std::string& within) {
  const fs::path file = temporary_folder() / ("costs-" + within + ".json");
  std::ofstream(file)
      << R"({"prun_costs":3,"machine":{"cpu":"none","cores":1,"isa":"generic"},"rates":[{"device":"cpu",)"
      << R"("source":"nobody","fp32":1e9,"bytes_per_second":1e9,"fixed":1e-7,"within":)" << within
      << R"(,"within_latency":1e-6,"least":0.5,"most":2}],"overheads":[],"kernels":[],"exact":[],)"
      << R"("exchanges":[],"exact_exchanges":[]})";
  return file;
}

fs::path open_recipe(const std::string& name, const std::vector<std::string>& sets = {}) {
  std::vector<std::string> all = {"run.steps=4", "device.threads=1", "batch.micro=0", "batch.order=auto"};
  all.insert(all.end(), sets.begin(), sets.end());
  const fs::path file = temporary_folder() / (name + ".toml");
  std::ofstream(file) << tiny_recipe(all).resolved_toml();
  return file;
}

fs::path gpu_recipe(const std::string& gpu) {
  const fs::path file = temporary_folder() / "gpu.toml";
  std::ofstream(file) << tiny_recipe({"device.plugin=cuda", "device.plan_gpu=" + gpu, "device.plan_gib=80",
                                      "precision.compute=bf16"})
                             .resolved_toml();
  return file;
}

// `costs`: what this machine's own table is; empty: it has none.
Result prun(std::vector<std::string> words, const fs::path& costs = {}) {
  const fs::path cache = temporary_folder() / (costs.empty() ? "none" : costs.stem().string());
  if (!costs.empty()) {
    fs::create_directories(cache / "prun");
    fs::copy_file(costs, cache / "prun" / "costs.json", fs::copy_options::overwrite_existing);
  }
  words.insert(words.begin(), {"/usr/bin/env", "XDG_CACHE_HOME=" + cache.string(), PRUN_TEST_BINARY});
  return run_program(words);
}

TEST(TuneVerb, WritesARecipeThatPassesCheck) {
  const fs::path file = open_recipe("open"), out = temporary_folder() / "best.toml";
  const std::string costs = costs_with("1e9");
  const Result tuned = prun({"tune", file, "--ranks", "2", "--costs", costs, "--write", out});
  ASSERT_EQ(tuned.code, 0) << tuned.out;
  EXPECT_NE(tuned.out.find("best        by the time of a step\n"), std::string::npos) << tuned.out;
  EXPECT_NE(tuned.out.find("why         the best is bound by"), std::string::npos) << tuned.out;
  EXPECT_NE(tuned.out.find("by nobody, none of it measured on this machine"), std::string::npos) << tuned.out;
  const Result check = prun({"check", out});
  EXPECT_EQ(check.code, 0) << check.out;
  EXPECT_EQ(text_of(out).find("# Laid out by prun tune for 2 ranks"), 0U);
  EXPECT_EQ(prun({"tune", file, "--ranks", "2", "--costs", costs, "--write", out}).code, 0)
      << "it replaces its own";
  EXPECT_EQ(prun({"tune", file, "--ranks", "2", "--costs", costs, "--write", file}).code, 2)
      << "and nothing else";
}

// Where updates are most of a step, half of what they read and write is time; nobody gets other numbers
// unasked.
TEST(TuneVerb, RoundingThatWouldHelpIsNamed) {
  const std::vector<std::string> sets = {"precision.compute=bf16", "model.vocab=4096", "batch.global=1"};
  const std::string costs = costs_with("1e9");
  const Result tuned = prun({"tune", open_recipe("rounding", sets), "--ranks", "1", "--costs", costs});
  ASSERT_EQ(tuned.code, 0) << tuned.out;
  EXPECT_NE(tuned.out.find("other rounding, precision.master=split and precision.gradient=bf16, would give"),
            std::string::npos)
      << tuned.out;
  std::vector<std::string> narrow = sets;
  narrow.insert(narrow.end(), {"precision.master=split", "precision.gradient=bf16"});
  EXPECT_EQ(prun({"tune", open_recipe("rounded", narrow), "--ranks", "1", "--costs", costs})
                .out.find("other rounding"),
            std::string::npos);
}

TEST(TuneVerb, JsonHasWhatTheTableShows) {
  const fs::path file = open_recipe("json");
  const Result tuned =
      prun({"tune", file, "--ranks", "2", "--costs", costs_with("1e9"), "--json", "--top", "3"});
  ASSERT_EQ(tuned.code, 0) << tuned.out;
  const JsonValue all = parse_json(tuned.out, "tune");
  EXPECT_EQ(all.at("ranks").as_int64(), 2);
  ASSERT_EQ(all.at("best").as_array().size(), 3U);
  const JsonValue& best = all.at("best").as_array()[0];
  EXPECT_GT(best.at("step_seconds").as_double(), 0);
  EXPECT_GT(best.at("most_step_seconds").as_double(), best.at("step_seconds").as_double());
  EXPECT_GT(best.at("device_bytes").as_int64(), 0);
  EXPECT_FALSE(all.at("why").as_array().empty());
}

TEST(TuneVerb, LooksForTokensASecondWithABatchThatMayGrow) {
  const fs::path file = open_recipe("tokens");
  const std::string costs = costs_with("1e9");
  const Result tuned =
      prun({"tune", file, "--ranks", "2", "--costs", costs, "--for", "tokens", "--batch-to", "64"});
  ASSERT_EQ(tuned.code, 0) << tuned.out;
  EXPECT_NE(tuned.out.find("best        by tokens a second; of those within 1 % of the most"),
            std::string::npos)
      << tuned.out;
  EXPECT_NE(tuned.out.find(", batch "), std::string::npos) << tuned.out;
  const Result grows = prun({"tune", file, "--costs", costs, "--batch-to", "64"});
  EXPECT_EQ(grows.code, 2) << grows.out;
  EXPECT_NE(grows.out.find("add --for tokens"), std::string::npos) << grows.out;
  const Result other = prun({"tune", file, "--costs", costs, "--for", "money"});
  EXPECT_EQ(other.code, 2) << other.out;
  EXPECT_NE(other.out.find("--for takes time, memory or tokens, not 'money'"), std::string::npos)
      << other.out;
}

// A table of made-up rates that says it is of this machine.
fs::path costs_of_here() {
  CostTable table = parse_costs(text_of(costs_with("1e9")), "costs");
  table.machine = this_machine();
  const fs::path file = temporary_folder() / "here.json";
  std::ofstream(file) << to_json(table) << "\n";
  return file;
}

TEST(TuneVerb, MeasuresTheBestAndTrainsThem) {
  const fs::path file = open_recipe("here"), costs = costs_of_here();
  const Result tuned = prun({"tune", file, "--ranks", "2", "--costs", costs, "--measure", "1", "--try", "2"});
  ASSERT_EQ(tuned.code, 0) << tuned.out;
  EXPECT_NE(tuned.out.find(" kernels were measured in "), std::string::npos) << tuned.out;
  EXPECT_NE(tuned.out.find("the best 2 were trained for 8 steps each"), std::string::npos) << tuned.out;
  EXPECT_NE(tuned.out.find("another time it may be another"), std::string::npos) << tuned.out;
  EXPECT_NE(tuned.out.find(" a step when both were trained, the best "), std::string::npos) << tuned.out;
  EXPECT_FALSE(parse_costs(text_of(costs), "costs").exact.empty()) << "they are in the table";
}

// As bench comm would: from then on, exchanges have curves and no longer rates.
TEST(TuneVerb, MeasuresExchangesWhereTimeIsLeft) {
  const fs::path file = open_recipe("exchanges"), costs = costs_of_here();
  const std::vector<std::string> command = {"tune",    file,  "--ranks",   "2",
                                            "--costs", costs, "--measure", "60"};
  const Result first = prun(command);
  ASSERT_EQ(first.code, 0) << first.out;
  EXPECT_NE(first.out.find(" kernels and exchanges among 2 ranks were measured in "), std::string::npos)
      << first.out;
  const CostTable table = parse_costs(text_of(costs), "costs");
  for (const CommKind kind : {CommKind::all_reduce, CommKind::all_gather, CommKind::send})
    EXPECT_EQ(table.exchanges.count({kind, 2, host_exchanges}), 1U) << name_of(kind);
  const Result second = prun(command);
  ASSERT_EQ(second.code, 0) << second.out;
  EXPECT_EQ(second.out.find("exchanges among"), std::string::npos) << second.out;
}

TEST(TuneVerb, TheBestByTrainingLeads) {
  const Result tuned = prun(
      {"tune", open_recipe("try"), "--ranks", "2", "--costs", costs_with("1e9"), "--try", "3", "--json"});
  ASSERT_EQ(tuned.code, 0) << tuned.out;
  const JsonValue all = parse_json(tuned.out, "tune");
  const JsonArray& best = all.at("best").as_array();
  ASSERT_GT(best.size(), 3U);
  double before = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_GT(best[i].at("trained_step_seconds").as_double(), before);
    before = best[i].at("trained_step_seconds").as_double();
  }
  EXPECT_EQ(best[3].find("trained_step_seconds"), nullptr);
}

TEST(TuneVerb, WhatIsNotHereIsNeitherMeasuredNorTrained) {
  if (!is_built("device", "cuda")) GTEST_SKIP() << "there is no device plugin 'cuda'";
  const fs::path gpu = gpu_recipe("a100"), file = open_recipe("not-here");
  const Result absent = prun({"tune", gpu, "--try", "1"});
  if (absent.code == 0) GTEST_SKIP() << "there is a GPU";
  EXPECT_EQ(absent.code, 2) << absent.out;
  EXPECT_NE(
      absent.out.find("--measure and --try run steps on this machine, and 'cuda: a100, which is not here'; "
                      "leave them out"),
      std::string::npos)
      << absent.out;
  const Result other = prun({"tune", file, "--ranks", "2", "--costs", costs_with("1e9"), "--measure", "1"});
  EXPECT_EQ(other.code, 2) << other.out;
  EXPECT_NE(other.out.find("is of another machine"), std::string::npos) << other.out;
  const Result hosts =
      prun({"tune", file, "--ranks", "2", "--hosts", "2", "--costs", costs_with("1e7"), "--try", "1"});
  EXPECT_EQ(hosts.code, 2) << hosts.out;
  EXPECT_NE(hosts.out.find("--try trains on this host, and 2 ranks lie on several"), std::string::npos)
      << hosts.out;
}

TEST(TuneVerb, WithoutACostTableItSaysWhatMakesOne) {
  const Result tuned = prun({"tune", open_recipe("unknown"), "--ranks", "2"});
  EXPECT_EQ(tuned.code, 2) << tuned.out;
  EXPECT_NE(tuned.out.find("prun bench kernels and prun bench comm measure this machine"), std::string::npos)
      << tuned.out;
}

// The choice is written into run and checkpoint, and a run that goes on keeps it, whatever the table says
// then.
TEST(TuneVerb, ALayoutLeftToPrunIsChosenOnceAndKept) {
  const fs::path out = temporary_folder() / "laid-out";
  const fs::path file = open_recipe(
      "layout", {"run.layout=auto", "run.ranks=2", "run.save_every=2", "run.out=" + out.string()});
  const Result run = prun({file}, costs_with("1e9"));
  ASSERT_EQ(run.code, 0) << run.out;
  EXPECT_NE(run.out.find("prun: auto stands for layout "), std::string::npos) << run.out;
  const Result shown = prun({"ckpt", "show", out, "--json"});
  ASSERT_EQ(shown.code, 0) << shown.out;
  const JsonValue manifest = parse_json(text_of(out / "step-00000004" / "manifest.json"), "manifest");
  const std::string mesh = manifest.at("mesh").as_string();
  EXPECT_NE(mesh.find("=2"), std::string::npos) << mesh;
  const Result again =
      prun({file, "--set", "run.resume=" + out.string(), "--set", "run.steps=6"}, costs_with("1e4"));
  ASSERT_EQ(again.code, 0) << again.out;
  EXPECT_NE(again.out.find("prun: auto stands for layout as in the run that goes on"), std::string::npos)
      << again.out;
  EXPECT_EQ(parse_json(text_of(out / "step-00000006" / "manifest.json"), "manifest").at("mesh").as_string(),
            mesh);
}

// A GPU is called the same wherever one names it.
TEST(TuneVerb, AGpuHasTheSameNamesInARecipeAndForACostTable) {
  if (!is_built("device", "cuda")) GTEST_SKIP() << "there is no device plugin 'cuda'";
  const fs::path file = gpu_recipe("");
  const std::string said = "the data sheet of an A100 SXM";
  if (prun({"plan", file}).out.find("no GPU here") == std::string::npos) GTEST_SKIP() << "there is a GPU";
  for (const std::string name : {"a100", "A100", "NVIDIA A100", "NVIDIA A100-SXM4-80GB"}) {
    const Result plan = prun({"plan", file, "--costs", name, "--set", "device.plan_gpu=" + name});
    EXPECT_EQ(plan.code, 0) << plan.out;
    EXPECT_NE(plan.out.find(said), std::string::npos) << name << ": " << plan.out;
  }
  const Result costs = prun({"plan", file, "--costs", "z9"});
  EXPECT_EQ(costs.code, 2) << costs.out;
  EXPECT_NE(costs.out.find("those of a100, h100, h200, rtx4090 come with prun"), std::string::npos)
      << costs.out;
  // What was measured on the host says nothing of a GPU.
  const Result tuned = prun({"tune", file, "--set", "device.plan_gpu=z9"}, costs_with("1e9"));
  EXPECT_EQ(tuned.code, 2) << tuned.out;
  EXPECT_NE(tuned.out.find("device.plan_gpu names one whose rates come with prun: a100, h100, h200, rtx4090"),
            std::string::npos)
      << tuned.out;
}

TEST(TuneVerb, AReportOfAnOpenRecipeDrawsItsLayouts) {
  const fs::path file = open_recipe("drawn", {"run.layout=auto", "run.ranks=2"}),
                 page = temporary_folder() / "drawn.html";
  const Result report = prun({"report", file, "--costs", costs_with("1e9"), "--out", page});
  ASSERT_EQ(report.code, 0) << report.out;
  const std::string text = text_of(page);
  EXPECT_NE(text.find("Layouts that were planned"), std::string::npos);
  EXPECT_NE(text.find("<circle class=\"f3\""), std::string::npos);
}

TEST(TuneVerb, RatesThatComeWithPrunGiveATimeForAGpuThatIsNotHere) {
  if (!is_built("device", "cuda")) GTEST_SKIP() << "there is no device plugin 'cuda'";
  const fs::path file = gpu_recipe("NVIDIA A100");
  const Result plan = prun({"plan", file});
  ASSERT_EQ(plan.code, 0) << plan.out;
  if (plan.out.find("which is not here") == std::string::npos) GTEST_SKIP() << "there is a GPU";
  EXPECT_NE(plan.out.find(" a step, "), std::string::npos) << plan.out;
  EXPECT_NE(plan.out.find("  between "), std::string::npos) << plan.out;
  EXPECT_NE(plan.out.find("the data sheet of an A100 SXM"), std::string::npos) << plan.out;
}

}  // namespace
}  // namespace prun::test
