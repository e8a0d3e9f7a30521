// The binary as a user meets it: exit codes, sentences, signals.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "base/json.hpp"
#include "binary.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "support/sanitized.hpp"
#include "support/temp_folder.hpp"
#include "train/assemble/process_memory.hpp"

namespace prun::test {
namespace {

namespace fs = std::filesystem;

// The tiny recipe as a file.
std::string recipe_file(const std::vector<std::string>& sets = {}) {
  const fs::path path = temporary_folder() / "tiny.toml";
  std::ofstream(path) << tiny_recipe(sets).resolved_toml();
  return path.string();
}

std::string config(const std::string& name) {
  return (fs::path(PRUN_SOURCE_DIR) / "configs" / name).string();
}

TEST(Cli, HelpAndVersion) {
  EXPECT_EQ(prun({"--help"}).code, 0);
  EXPECT_NE(prun({"--help"}).out.find("prun check RECIPE"), std::string::npos);
  EXPECT_NE(prun({"--version"}).out.find("plugin epoch"), std::string::npos);
}

TEST(Cli, BadInputExitsWithTwo) {
  const Result missing = prun({"nowhere.toml"});
  EXPECT_EQ(missing.code, 2);
  EXPECT_NE(missing.out.find("nowhere.toml"), std::string::npos) << missing.out;
  const Result option = prun({"check", recipe_file(), "--jsno"});
  EXPECT_EQ(option.code, 2);
  EXPECT_NE(option.out.find("--json"), std::string::npos) << option.out;
  const Result wrong = prun({"check", recipe_file(), "--set", "optimizer.lrr=1", "--set", "batch.micro=x"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.out.find("did you mean 'lr'"), std::string::npos) << wrong.out;
  EXPECT_NE(wrong.out.find("batch.micro=x"), std::string::npos) << wrong.out;
}

TEST(Cli, ACommandThatThereIsNotIsNamedWithTheNearest) {
  const Result result = prun({"chek", recipe_file()});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.out.find("there is no command 'chek'; did you mean 'check'?"), std::string::npos)
      << result.out;
}

TEST(Cli, ImpossibleCombinationsAreShownTogether) {
  const Result result = prun({"check", recipe_file(), "--set", "batch.global=6", "--set",
                              "precision.compute=fp64", "--set", "mesh.dp=2"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.out.find("the nearest that are: 4 and 8"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("precision.state is narrower"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("no strategy uses the axis 'dp'"), std::string::npos) << result.out;
}

TEST(Cli, WhatCannotBePlannedInSecondsIsRefusedAtOnce) {
  for (const char* set : {"batch.global=1000000000", "model.layers=100000", "mesh.dp=1048577"}) {
    const Result result = prun({"plan", recipe_file({"batch.micro=1"}), "--set", set});
    EXPECT_EQ(result.code, 2) << result.out;
    EXPECT_EQ(result.out.find("What would fit"), std::string::npos) << result.out;
    if (sanitized) continue;  // its shadow memory counts as ours
    EXPECT_LT(result.peak_bytes, std::int64_t{200} << 20) << "planned before it was refused: " << set;
  }
}

TEST(Cli, NoChangeOfAStepThatTakesLongToPlanIsTried) {
  const Result result =
      prun({"plan", recipe_file(), "--set", "model.layers=20000", "--set", "device.memory=1MiB"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.out.find("Plans of this size take long, so none of "), std::string::npos) << result.out;
}

// Some 25 KiB a layer; pairs of layers would have 4 GiB.
TEST(Cli, TenThousandLayersArePlannedInMemoryThatGrowsWithThem) {
  const Result result = prun({"plan", recipe_file(), "--set", "model.layers=10000", "--set", "model.hidden=8",
                              "--set", "model.heads=1", "--set", "batch.global=1", "--set", "batch.micro=1"});
  EXPECT_EQ(result.code, 0) << result.out;
  EXPECT_LT(result.peak_bytes, std::int64_t{3} << 29) << result.out;
}

TEST(Cli, WhatDoesNotFitIsRefusedBeforeItRuns) {
  const Result result = prun({recipe_file(), "--set", "device.memory=100KiB"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.out.find("100.00 KiB may be used"), std::string::npos) << result.out;
}

TEST(Cli, CheckAnswersPrograms) {
  const JsonValue good = parse_json(prun({"check", recipe_file(), "--json"}).out, "check");
  EXPECT_TRUE(good.at("good").as_bool());
  EXPECT_NE(good.at("batch").as_string().find("tokens a step"), std::string::npos);
  const Result wrong = prun({"check", recipe_file(), "--json", "--set", "optimizer.lrr=1"});
  EXPECT_EQ(wrong.code, 2);
  const JsonValue bad = parse_json(wrong.out, "check");
  EXPECT_FALSE(bad.at("good").as_bool());
  EXPECT_NE(bad.at("problem").as_string().find("did you mean 'lr'"), std::string::npos);
  EXPECT_EQ(prun({"check", recipe_file(), "--quiet"}).out, "");
}

TEST(Cli, PlanSpeaksJson) {
  const Result result = prun({"plan", recipe_file(), "--json"});
  ASSERT_EQ(result.code, 0) << result.out;
  const JsonValue json = parse_json(result.out, "plan");
  EXPECT_EQ(json.at("batch").at("global").as_int64(), 4);
  std::int64_t sum = 0;
  for (const JsonMember& member : json.at("memory").as_object().members()) sum += member.value.as_int64();
  EXPECT_EQ(sum, json.at("memory_bytes").as_int64());
  const std::int64_t without_saves =
      json.at("process_bytes").as_int64() - json.at("save_memory_bytes").as_int64();
  EXPECT_GT(without_saves, base_process_bytes);  // by what is kept of calls and tensors
  EXPECT_LT(without_saves, base_process_bytes + (4 << 20));
}

TEST(Cli, PlanSaysWhatEachSizeOfABatchThatGrowsIs) {
  const std::vector<std::string> grows = {"batch.global=8", "batch.micro=2", "batch.ramp.sizes=[2, 4]",
                                          "batch.ramp.until=[1, 3]"};
  const Result text = prun({"plan", recipe_file(grows)});
  EXPECT_EQ(text.code, 0) << text.out;
  for (const char* line : {"ramp        step 1: 2 sequences = 2 micro x 1 accumulate",
                           "            steps 2 to 3: 4 sequences = 2 micro x 2 accumulate",
                           "            from step 4 on: 8 sequences = 2 micro x 4 accumulate"})
    EXPECT_NE(text.out.find(line), std::string::npos) << line << "\n" << text.out;
  const JsonValue json = parse_json(prun({"plan", recipe_file(grows), "--json"}).out, "plan");
  ASSERT_EQ(json.at("ramp").as_array().size(), 3u);
  EXPECT_EQ(json.at("ramp").as_array()[1].at("accumulate").as_int64(), 2);
  const Result refused = prun({"plan", recipe_file(grows), "--set", "batch.micro=4"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.out.find("batch.ramp comes to steps of 2 sequences, no multiple of batch.micro = 4"),
            std::string::npos)
      << refused.out;
}

TEST(Cli, PlanShowsTheProgramBeforeAndAfterLowering) {
  const std::string recipe = recipe_file();
  const Result written = prun({"plan", recipe, "--program"});
  EXPECT_NE(written.out.find("= split_heads("), std::string::npos) << written.out;
  EXPECT_EQ(written.out.find("attention_packed"), std::string::npos) << written.out;
  const Result lowered = prun({"plan", recipe, "--program", "--lowered"});
  EXPECT_NE(lowered.out.find("= attention_packed("), std::string::npos) << lowered.out;
  EXPECT_EQ(lowered.out.find("split_heads"), std::string::npos) << lowered.out;
  const Result alone = prun({"plan", recipe, "--lowered"});
  EXPECT_EQ(alone.code, 2);
  EXPECT_NE(alone.out.find("--lowered goes with prun plan RECIPE --program"), std::string::npos) << alone.out;
}

TEST(Cli, WhatIsNotThereGetsTheNearestNameThatIs) {
  const TempFolder folder;
  folder.write("first.toml", "");
  folder.write("runs/first/log.jsonl", "");
  const auto said = [&](const std::string& verb, const std::string& name) {
    const Result result = prun({verb, folder / name});
    EXPECT_EQ(result.code, 2) << result.out;
    return result.out;
  };
  const auto meant = [&](const std::string& name) { return "; did you mean '" + (folder / name) + "'?"; };
  for (const char* verb : {"run", "check", "report"})
    EXPECT_NE(said(verb, "frist.toml").find("there is no such file" + meant("first.toml")),
              std::string::npos);
  for (const char* verb : {"report", "watch", "eval"})
    EXPECT_NE(said(verb, "runs/frist").find(meant("runs/first")), std::string::npos) << verb;
  EXPECT_NE(said("run", "runs/first")
                .find("is a folder, not a recipe; a run goes on by prun RECIPE --set run.resume="),
            std::string::npos);
}

TEST(Cli, PlanPredictsWhereTheMachineWasMeasured) {
  setenv("XDG_CACHE_HOME", (temporary_folder() / "cache").c_str(), 1);
  const std::string recipe = recipe_file({"device.threads=1"});
  const Result before = prun({"plan", recipe});
  EXPECT_NE(before.out.find("prediction  none: no cost table yet; prun bench kernels RECIPE makes one"),
            std::string::npos)
      << before.out;
  ASSERT_EQ(prun({"bench", "kernels", recipe, "--no-grid"}).code, 0);
  const Result plan = prun({"plan", recipe});
  EXPECT_NE(plan.out.find("tokens/s, exposed communication 0 ms"), std::string::npos) << plan.out;
  const JsonValue json = parse_json(prun({"plan", recipe, "--json"}).out, "plan");
  EXPECT_GT(json.at("prediction").at("step_seconds").as_double(), 0);
  EXPECT_TRUE(json.at("prediction").at("notes").as_array().empty());
  const std::string trace = (temporary_folder() / "simulated.json").string();
  const Result simulated = prun({"trace", recipe, "--simulated", "--out", trace});
  EXPECT_EQ(simulated.code, 0) << simulated.out;
  EXPECT_TRUE(fs::exists(trace));
  EXPECT_EQ(prun({"plan", recipe, "--costs", "/nowhere.json"}).code, 2);
}

TEST(Cli, PlanShowsRanksAndTraffic) {
  const fs::path path = temporary_folder() / "ranks.toml";
  std::ofstream(path) << tiny_recipe({"batch.global=8"}, data_parallel(2)).resolved_toml();
  const Result plan = prun({"plan", path.string()});
  EXPECT_NE(plan.out.find("ranks       2 = dp 2\n  dp                   1 group of 2: 0 1\n"),
            std::string::npos)
      << plan.out;
  EXPECT_NE(plan.out.find("traffic     what each rank sends a step\n"), std::string::npos) << plan.out;
  EXPECT_NE(plan.out.find(" MiB, not in the arena\n"), std::string::npos) << plan.out;
  const JsonValue json = parse_json(prun({"plan", path.string(), "--json"}).out, "plan");
  EXPECT_EQ(json.at("mesh").at("dp").as_int64(), 2);
  EXPECT_GT(json.at("process_bytes").as_int64(), base_process_bytes);
  const double gradients = static_cast<double>(json.at("memory").at("gradients").as_int64());
  EXPECT_NEAR(json.at("sent_bytes").at("dp.reduce").at("bytes").as_double() / gradients, 1, 0.01);
}

// Ranks of a host that talk through its network are slow, and nothing else would say so.
TEST(Cli, ARunSaysWhatCarriesItsAxes) {
  const fs::path path = temporary_folder() / "axes.toml";
  std::ofstream(path) << tiny_recipe({"batch.global=8", "run.steps=2", "run.save_at_end=false",
                                      "run.out=" + (temporary_folder() / "axes").string(), "run.fresh=true"},
                                     data_parallel(2) + "[[observer]]\nplugin = 'console'\n")
                             .resolved_toml();
  const Result shares = prun({path.string()});
  ASSERT_EQ(shares.code, 0) << shares.out;
  EXPECT_NE(shares.out.find("note: axis dp goes by ucx: shared memory ("), std::string::npos) << shares.out;
  const Result by_network = shell("UCX_TLS=tcp,self $PRUN " + path.string());
  ASSERT_EQ(by_network.code, 0) << by_network.out;
  EXPECT_NE(by_network.out.find("warning: axis dp goes by ucx: tcp ("), std::string::npos) << by_network.out;
  EXPECT_NE(by_network.out.find("between ranks of one host; let them share memory: "), std::string::npos)
      << by_network.out;
}

TEST(Cli, PlanDrawsThePipeline) {
  const std::string recipe = config("pipeline.toml");
  const std::string text = prun({"plan", recipe}).out;
  EXPECT_NE(text.find("pipeline    zb-v, 2 ranks, 2 chunks a rank, 8 microbatches"), std::string::npos)
      << text;
  EXPECT_NE(text.find("\n  rank 0  F-F-F-F-B-W-"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  rank 1  ..F-F-F-"), std::string::npos) << text;
  // One unit in 49: eight microbatches, two chunks of F, B and W each, and the wait for the other rank.
  EXPECT_NE(text.find("bubble      2.0 % of the step (theory (p-1)/(6 m+p-1) = 2.0 %)\n"), std::string::npos)
      << text;
  EXPECT_EQ(text.find("drawn: "), std::string::npos) << text;
  const JsonValue json = parse_json(prun({"plan", recipe, "--json"}).out, "plan").at("pipeline");
  EXPECT_EQ(json.at("schedule").as_string(), "zb-v");
  EXPECT_EQ(json.at("chunks").as_int64(), 2);
  EXPECT_NEAR(json.at("bubble").as_double(), 1.0 / 49, 1e-12);
}

TEST(Cli, PlanWithoutPipelineDrawsNone) {
  EXPECT_EQ(prun({"plan", recipe_file()}).out.find("pipeline"), std::string::npos);
  EXPECT_TRUE(parse_json(prun({"plan", recipe_file(), "--json"}).out, "plan").at("pipeline").is_null());
}

// The idle share that was simulated is the closed form's, for each schedule that has one.
TEST(Cli, BubblesAreThoseOfTheory) {
  struct Case {
    const char* schedule;
    int chunks, microbatches;
    double share;
    bool known;
  };
  for (const Case& c : {Case{"gpipe", 1, 4, 3.0 / 15, true}, Case{"1f1b", 1, 4, 3.0 / 15, true},
                        Case{"interleaved", 2, 4, 3.0 / 27, true}, Case{"zb-h1", 1, 4, 1.0 / 13, true},
                        Case{"zb-v", 2, 4, 1.0 / 25, true}, Case{"zb-h1", 1, 1, 0, false}}) {
    const std::vector<std::string> sets = {"--set", "strategy.0.schedule=" + std::string(c.schedule),
                                           "--set", "strategy.0.chunks=" + std::to_string(c.chunks),
                                           "--set", "batch.global=" + std::to_string(2 * c.microbatches)};
    std::vector<std::string> words = {"plan", config("pipeline.toml")};
    words.insert(words.end(), sets.begin(), sets.end());
    const Result text = prun(words);
    ASSERT_EQ(text.code, 0) << text.out;
    EXPECT_EQ(text.out.find("(theory ") != std::string::npos, c.known) << c.schedule << ": " << text.out;
    if (!c.known) continue;
    words.push_back("--json");
    EXPECT_NEAR(parse_json(prun(words).out, "plan").at("pipeline").at("bubble").as_double(), c.share, 1e-12)
        << c.schedule;
  }
}

TEST(Cli, PlansOfThousandsOfRanksAreMadeHere) {
  const Result gpt3 = prun({"plan", config("gpt3-175b.toml")});
  EXPECT_EQ(gpt3.code, 0) << gpt3.out;
  EXPECT_NE(gpt3.out.find("ranks       1024 = dp 16 x pp 8 x tp 8\n"), std::string::npos) << gpt3.out;
  EXPECT_NE(gpt3.out.find("drawn: 16 of 96 microbatches\n"), std::string::npos) << gpt3.out;
  const Result mt_nlg = prun({"plan", config("mt-nlg-530b.toml")});
  EXPECT_EQ(mt_nlg.code, 0) << mt_nlg.out;
  EXPECT_NE(mt_nlg.out.find("ranks       2240 = dp 8 x pp 35 x tp 8\n"), std::string::npos) << mt_nlg.out;
  EXPECT_NE(mt_nlg.out.find("drawn: ranks 27 to 34 of 35, 16 of 240 microbatches\n"), std::string::npos)
      << mt_nlg.out;
  EXPECT_NE(mt_nlg.out.find("bubble      12.4 % of the step (theory (p-1)/(m+p-1) = 12.4 %)\n"),
            std::string::npos)
      << mt_nlg.out;
}

// A prediction does not replace what was measured.
TEST(Cli, ASimulatedTraceHasItsOwnName) {
  const fs::path folder = temporary_folder() / "traces";
  fs::create_directory(folder);
  const std::string costs = (folder / "costs.json").string(), recipe = recipe_file({"device.threads=1"});
  std::ofstream(costs)
      << R"({"prun_costs":3,"machine":{"cpu":"none","cores":1,"isa":"generic"},"rates":[{"device":"cpu",)"
      << R"("source":"nobody","fp32":1e9,"bytes_per_second":1e9,"fixed":1e-7,"least":0.5,"most":2}],)"
      << R"("overheads":[],"kernels":[],"exact":[],"exchanges":[],"exact_exchanges":[]})";
  const Result traced = shell("cd " + folder.string() + " && $PRUN trace " + recipe +
                              " --steps 1 && $PRUN trace " + recipe + " --simulated --costs " + costs);
  EXPECT_EQ(traced.code, 0) << traced.out;
  EXPECT_TRUE(fs::exists(folder / "tiny.trace.json")) << traced.out;
  EXPECT_TRUE(fs::exists(folder / "tiny.simulated.trace.json")) << traced.out;
}

TEST(Cli, TraceRunsARankThatIsAlone) {
  const std::string trace = (temporary_folder() / "real.json").string();
  const Result result = prun({"trace", recipe_file(), "--steps", "2", "--out", trace});
  EXPECT_EQ(result.code, 0) << result.out;
  EXPECT_NE(result.out.find("exposed communication 0.000 ms"), std::string::npos) << result.out;
  std::ifstream file(trace);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_GT(parse_json(text, "trace").at("traceEvents").as_array().size(), 50u);
  EXPECT_EQ(prun({"trace", recipe_file(), "--steps", "1001"}).code, 2);
  EXPECT_EQ(prun({"bench", "nothing"}).code, 2);
  EXPECT_EQ(prun({"bench", "comm", "--ranks", "1"}).code, 2);
}

// A log with holes is worse than none; what was trained is worth more.
TEST(Cli, AnObserverThatFailsEndsTheRunOnceItIsSaved) {
  for (const std::string& layout : {std::string(), data_parallel(2)}) {
    const std::string out = (temporary_folder() / "unlogged").string();
    const fs::path path = temporary_folder() / "unlogged.toml";
    std::ofstream(path) << tiny_recipe(
                               {"run.steps=100000", "run.out=" + out, "run.fresh=true", "batch.micro=1",
                                "observer.0.plugin=failing", "observer.1.plugin=console"},
                               layout)
                               .resolved_toml();
    const Result result = prun({path.string(), "--plugin-path", PRUN_TEST_PLUGINS "/test"});
    EXPECT_EQ(result.code, exit_code(ErrorCode::storage)) << result.out;
    EXPECT_NE(result.out.find("the log is full"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("run.resume=" + out), std::string::npos) << result.out;
    EXPECT_EQ(prun({"ckpt", "verify", out}).code, 0);
  }
}

// State that another optimizer has made is there only in a checkpoint, in the recipe's precision.
TEST(Cli, VerifyGoesOnWithWhatAnotherOptimizerHasMade) {
  const std::string out = (temporary_folder() / "made").string();
  const std::vector<std::string> sizes = {"model.hidden=64", "model.ffn=128", "batch.micro=1",
                                          "batch.global=2", "run.out=" + out};
  const auto file = [&](const std::vector<std::string>& more) {
    const fs::path path = temporary_folder() / "made.toml";
    std::ofstream(path) << tiny_recipe(with(sizes, more), data_parallel(2)).resolved_toml();
    return path.string();
  };
  ASSERT_EQ(prun({file({"run.steps=4", "run.save_every=4"})}).code, 0);
  const std::vector<std::string> signs = {"optimizer.plugin=onebit_adam", "precision.reduce=1bit",
                                          "run.allow_changed=precision.reduce"};
  const Result anew = prun({"verify", file(signs)});
  EXPECT_EQ(anew.code, 2);
  EXPECT_NE(anew.out.find("goes on with what another optimizer has made"), std::string::npos) << anew.out;
  const std::string resumed = file(with(signs, {"run.resume=" + out}));
  const Result in_fp64 = prun({"verify", resumed});
  EXPECT_EQ(in_fp64.code, 2);
  EXPECT_NE(in_fp64.out.find("goes on from state in fp32; add --as-is"), std::string::npos) << in_fp64.out;
  const Result as_is = prun({"verify", resumed, "--as-is"});
  EXPECT_EQ(as_is.code, 0) << as_is.out;
}

// Numbers of samples mean others in a text that has grown.
TEST(Cli, ARunGoesOnWithTheSamplesThatItBeganWith) {
  const fs::path folder = temporary_folder() / "grown";
  fs::create_directories(folder);
  const std::string text = (folder / "text.txt").string(), out = (folder / "run").string();
  std::ofstream(text) << std::string(4000, 'a');
  const std::string recipe = recipe_file({"run.steps=2", "run.save_every=2", "run.out=" + out,
                                          "model.vocab=256", "data.plugin=text", "data.path=" + text});
  ASSERT_EQ(prun({recipe}).code, 0);
  const std::vector<std::string> on = {recipe, "--set", "run.resume=" + out, "--set", "run.steps=4"};
  std::ofstream(text, std::ios::app) << std::string(400, 'b');
  const Result refused = prun(on);
  EXPECT_EQ(refused.code, 2) << refused.out;
  EXPECT_NE(refused.out.find(
                "would be counted among others; if that is meant, add --set run.allow_changed=data.path"),
            std::string::npos)
      << refused.out;
  std::vector<std::string> meant = on;
  meant.insert(meant.end(), {"--set", "run.allow_changed=data.path"});
  EXPECT_EQ(prun(meant).code, 0);
}

TEST(Cli, ARunsNameIsThatOfAFolder) {
  for (const char* name : {"", ".", "..", "../up", "a/b"}) {
    const Result result =
        prun({"check", recipe_file({"run.out="}), "--set", std::string("run.name='") + name + "'"});
    EXPECT_EQ(result.code, 2) << name << result.out;
    EXPECT_NE(result.out.find("the run's folder is runs/NAME"), std::string::npos) << result.out;
  }
}

TEST(Cli, HelpOnACommandThatThereIsNotIsRefused) {
  const Result result = prun({"help", "chekc"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.out.find("there is no command 'chekc'; did you mean 'check'?"), std::string::npos)
      << result.out;
}

TEST(Cli, SignalsSaveAndTheCommandPrintedResumes) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGXCPU}) {
    const std::string out = (temporary_folder() / ("signal" + std::to_string(signal))).string();
    const std::string recipe =
        recipe_file({"run.steps=100000", "run.out=" + out, "observer.0.plugin=console"});
    const Result stopped = prun({recipe}, signal, "step 5/");
    EXPECT_EQ(stopped.code, 128 + signal) << stopped.out;
    const auto at = stopped.out.find("go on with: prun ");
    ASSERT_NE(at, std::string::npos) << stopped.out;
    EXPECT_NE(stopped.out.find("run.resume=" + out, at), std::string::npos) << stopped.out;
    const Result resumed = prun({recipe, "--set", "run.resume=" + out}, SIGINT, "step ");
    EXPECT_EQ(resumed.code, 130) << resumed.out;
    EXPECT_EQ(resumed.out.find("step 1/"), std::string::npos) << "it started anew: " << resumed.out;
  }
}

TEST(Cli, WhatNohupIgnoresStaysIgnored) {
  const std::string recipe = recipe_file({"run.steps=3000", "observer.0.plugin=console"});
  const Result run =
      run_program({"/bin/sh", "-c", "trap '' HUP; exec " PRUN_TEST_BINARY " " + recipe}, SIGHUP, "step 5/");
  EXPECT_EQ(run.code, 0) << run.out;
  EXPECT_NE(run.out.find("step 3000/"), std::string::npos);
}

TEST(Cli, AReaderThatHasEnoughEndsThePrintingNotTheRun) {
  const std::string recipe = recipe_file(
      {"run.steps=1000", "observer.0.plugin=console", "run.out=" + (temporary_folder() / "cut").string()});
  const Result cut = shell("{ $PRUN " + recipe + "; echo code $? >&2; } | head -1 > /dev/null");
  EXPECT_EQ(cut.out, "prun: standard output is gone (Broken pipe); the run goes on without it\ncode 0\n");
}

TEST(Cli, DamagedCheckpointIsRefusedInOneSentence) {
  const std::string out = (temporary_folder() / "damaged").string();
  const std::string recipe = recipe_file({"run.steps=2", "run.save_every=2", "run.out=" + out});
  ASSERT_EQ(prun({recipe}).code, 0);
  const fs::path file = fs::path(out) / "step-00000002" / "rank-00000.safetensors";
  ASSERT_TRUE(fs::exists(file));
  fs::resize_file(file, fs::file_size(file) - 100);
  const Result result = prun({recipe, "--set", "run.resume=" + out});
  EXPECT_EQ(result.code, 2) << result.out;
  EXPECT_NE(result.out.find("rank-00000.safetensors"), std::string::npos) << result.out;
  const Result other = prun({recipe, "--set", "run.resume=" + out + "/nothing"});
  EXPECT_EQ(other.code, 2) << other.out;
}

// What every rank would say is said once, before any starts, and by check as well.
TEST(Cli, WhatAllRanksWouldRefuseIsRefusedOnce) {
  const std::string saved = (temporary_folder() / "saved").string();
  ASSERT_EQ(prun({recipe_file({"run.steps=2", "run.save_every=2", "run.out=" + saved})}).code, 0);
  const std::vector<std::string> bad[] = {{"data.path=/nowhere/tokens.bin"},
                                          {"model.seq=25000"},
                                          {"run.resume=" + saved, "model.hidden=64"},
                                          {"run.resume=" + saved + "/nothing"},
                                          {"run.out=/proc/version/x"}};
  const std::string names[] = {"/nowhere/tokens.bin", "too few for one sample", "step-00000002: tensor '",
                               "give the folder of a checkpoint or of a run", "/proc/version/x"};
  for (const int ranks : {1, 3})
    for (const std::string& verb : {std::string("run"), std::string("check")})
      for (std::size_t i = 0; i < std::size(bad); ++i) {
        const fs::path path = temporary_folder() / "refused.toml";
        std::ofstream(path)
            << tiny_recipe({"batch.global=12"}, ranks > 1 ? data_parallel(ranks) : "").resolved_toml();
        std::vector<std::string> words = {verb, path.string()};
        for (const std::string& set : bad[i]) words.insert(words.end(), {"--set", set});
        const Result result = prun(words);
        EXPECT_EQ(result.code, 2) << result.out;
        EXPECT_NE(result.out.find(names[i]), std::string::npos) << result.out;
        EXPECT_EQ(result.out.find("prun: rank"), std::string::npos) << result.out;
        EXPECT_EQ(result.out.find("prun: ", 1), std::string::npos) << result.out;
      }
}

TEST(Cli, ASecondRunInAFolderIsRefused) {
  const std::string out = (temporary_folder() / "two").string();
  for (const int ranks : {1, 2}) {
    fs::remove_all(out);
    const fs::path path = temporary_folder() / "two.toml";
    std::ofstream(path) << tiny_recipe({"run.out=" + out, "batch.global=8", "run.fresh=false"},
                                       ranks > 1 ? data_parallel(ranks) : "")
                               .resolved_toml();
    const std::string recipe = path.string();
    const Result both = shell("$PRUN " + recipe +
                              " --set run.steps=1000000 2>/dev/null & first=$!; until grep -qs '\"loss\":' " +
                              out + "/log.jsonl; do sleep 0.02; done; $PRUN " + recipe +
                              "; echo code $?; kill $first; wait $first; echo code $?; kill -0 $first 2>&1");
    EXPECT_NE(both.out.find("is in use by the run 'tiny' (pid "), std::string::npos) << both.out;
    EXPECT_NE(both.out.find("code 2\n"), std::string::npos) << both.out;
    EXPECT_NE(both.out.find("code 143\n"), std::string::npos) << both.out;
    const Result again = prun({recipe});
    EXPECT_EQ(again.code, 2) << again.out;
    EXPECT_NE(again.out.find("holds a run already; go on with it by --set run.resume=" + out),
              std::string::npos)
        << again.out;
    EXPECT_EQ(prun({recipe, "--set", "run.steps=1", "--set", "run.fresh=true"}).code, 0);
    EXPECT_TRUE(fs::exists(out + ".1/log.jsonl"));
    EXPECT_TRUE(fs::exists(out + "/log.jsonl"));
    fs::remove_all(out + ".1");
  }
}

TEST(Cli, ARunFolderThatIsRemovedIsNoticed) {
  const std::string out = (temporary_folder() / "removed").string();
  for (const std::string observer : {"jsonl", "console"}) {
    const std::string recipe = recipe_file({"run.steps=1000000", "run.save_every=500", "run.keep=1",
                                            "run.out=" + out, "observer.0.plugin=" + observer});
    const Result run = shell("$PRUN " + recipe + " > /dev/null & first=$!; while ! [ -e " + out +
                             "/latest ]; do sleep 0.02; done; mv " + out + " " + out + "-gone; rm -rf " +
                             out + "-gone; wait $first; echo code $?");
    EXPECT_NE(run.out.find("removed"), std::string::npos) << run.out;
    EXPECT_NE(run.out.find("code 13\n"), std::string::npos) << run.out;
  }
}

TEST(Cli, ATokenFileThatShrinksIsNamed) {
  const fs::path tokens = temporary_folder() / "shrinking.bin";
  const std::string recipe = recipe_file({"run.steps=1000000", "observer.0.plugin=console"});
  fs::copy_file(temporary_folder() / "tokens.bin", tokens);
  const Result run = shell("$PRUN " + recipe + " --set data.path=" + tokens.string() +
                           " 2>&1 | { head -20; truncate -s 5000 " + tokens.string() + "; cat; }");
  EXPECT_NE(run.out.find("prun: data plugin 'tokens': " + tokens.string() +
                         ": has shrunk from 41024 to 5000 bytes"),
            std::string::npos)
      << run.out.substr(run.out.size() - std::min<std::size_t>(run.out.size(), 500));
  EXPECT_NE(run.out.find("failed: data plugin 'tokens'"), std::string::npos) << "no event tells why";
}

// A disk that is too small for one checkpoint, in a mount namespace.
TEST(Cli, FullDiskEndsTheRunWithItsName) {
  const fs::path disk = temporary_folder() / "full";
  fs::create_directory(disk);
  const auto on_the_disk = [&](const std::string& command) {
    return shell("export PRUN; unshare --mount sh -c 'mount -t tmpfs -o size=256k tmpfs " + disk.string() +
                 " && " + command + "'");
  };
  if (on_the_disk("true").code != 0) GTEST_SKIP() << "no mount namespace can be made here";
  for (const std::string every : {"0", "1"}) {  // a run saves its end all the same
    const std::string recipe =
        recipe_file({"run.steps=2", "run.save_every=" + every, "run.out=" + (disk / "run").string()});
    const Result result =
        on_the_disk("$PRUN " + recipe + "; code=$?; ls -a " + disk.string() + "; exit $code");
    EXPECT_EQ(result.code, 13) << result.out;
    EXPECT_EQ(result.out.find("latest"), std::string::npos) << "a half-written checkpoint was announced";
    EXPECT_EQ(result.out.find("step 1/"), std::string::npos) << "it was found after a step: " << result.out;
    EXPECT_NE(result.out.find("cannot save this run: a checkpoint needs"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("run.save_at_end = false"), std::string::npos) << result.out;
    const Result check = on_the_disk("$PRUN check " + recipe);
    EXPECT_EQ(check.code, 0) << check.out;
    EXPECT_NE(check.out.find("note: cannot save this run: a checkpoint needs"), std::string::npos)
        << check.out;
  }
  const std::string saves_nothing =
      recipe_file({"run.steps=2", "run.save_at_end=false", "run.out=" + (disk / "run").string()});
  const Result trained = on_the_disk("$PRUN " + saves_nothing);
  EXPECT_EQ(trained.code, 0) << trained.out;
}

TEST(Cli, AFinishedRunHasSavedItsEnd) {
  const fs::path out = temporary_folder() / "finished";
  const std::string recipe = recipe_file({"run.steps=3", "run.out=" + out.string()});
  EXPECT_NE(prun({"check", recipe}).out.find("\nsaves at the end; a checkpoint takes "), std::string::npos);
  const Result trained = prun({recipe});
  EXPECT_EQ(trained.code, 0) << trained.out;
  EXPECT_TRUE(fs::exists(out / "step-00000003")) << trained.out;
  EXPECT_EQ(prun({"ckpt", "verify", out.string()}).code, 0);
}

// The first norm is over the clip by far; a clip that nothing reaches clips nothing.
TEST(Cli, ARunTellsInHowManyStepsItsNormWasOverTheClip) {
  for (const auto& [clip, share] : std::initializer_list<std::pair<const char*, const char*>>{
           std::pair{"1e-9", "100"}, {"1e9", "0"}, {"0", ""}}) {
    const fs::path out = temporary_folder() / ("clipped-" + std::string(clip));
    const Result run = prun({recipe_file({"run.steps=3", std::string("optimizer.clip=") + clip,
                                          "run.out=" + out.string(), "observer.1.plugin=console"})});
    ASSERT_EQ(run.code, 0) << run.out;
    const bool clips = *share != '\0';
    EXPECT_EQ(run.out.find("| norm over clip in " + std::string(share) + "% of steps") != std::string::npos,
              clips)
        << run.out;
    std::ifstream log(out / "log.jsonl");
    const std::string lines((std::istreambuf_iterator<char>(log)), {});
    EXPECT_EQ(lines.find("\"clipped.share\":") != std::string::npos, clips) << lines;
    const std::string page = (out / "page.html").string();
    ASSERT_EQ(prun({"report", out.string(), "--out", page}).code, 0);
    std::ifstream file(page);
    const std::string html((std::istreambuf_iterator<char>(file)), {});
    EXPECT_NE(html.find("norm over clip"), std::string::npos);
    if (clips) {
      EXPECT_NE(html.find("<td>" + std::string(share) + " %</td>"), std::string::npos);
    }
  }
}

TEST(Cli, AWarmUpAsLongAsTheRunIsNamed) {
  const std::string said = "optimizer.schedule.warmup = 3 is as long as the run of 3 steps";
  const std::vector<std::string> sets = {"run.steps=3", "optimizer.schedule.warmup=3",
                                         "observer.1.plugin=console"};
  const std::string recipe = recipe_file(sets);
  EXPECT_NE(prun({"check", recipe}).out.find(said), std::string::npos);
  EXPECT_NE(prun({recipe}).out.find("warning: " + said), std::string::npos);
  EXPECT_EQ(prun({"check", recipe, "--set", "run.steps=4"}).out.find("is as long as the run"),
            std::string::npos);
}

TEST(Cli, ARunThatIsToSaveNothingSavesNothing) {
  const fs::path out = temporary_folder() / "unsaved";
  const std::string recipe = recipe_file({"run.steps=3", "run.save_at_end=false", "run.out=" + out.string()});
  EXPECT_NE(prun({"check", recipe}).out.find("\nsaves nothing (run.save_at_end = false)"), std::string::npos);
  EXPECT_EQ(prun({recipe}).code, 0);
  EXPECT_FALSE(fs::exists(out / "latest"));
}

TEST(Cli, WhatIsPrintedOntoAFullDiskIsMissed) {
  for (const std::string& command : {std::string("help"), "check " + recipe_file(), "plan " + recipe_file(),
                                     std::string("reference"), std::string("plugins list")}) {
    const Result full = shell("$PRUN " + command + " > /dev/full");
    EXPECT_EQ(full.code, 13) << command << full.out;
    EXPECT_EQ(full.out.rfind("prun: standard output cannot be written (", 0), 0u) << full.out;
    EXPECT_EQ(shell("$PRUN " + command + " >&-").code, 13) << command;
  }
}

TEST(Cli, AReaderThatHasEnoughIsNoError) {
  for (const char* command : {"reference", "help"}) {
    const Result cut =
        shell("{ $PRUN " + std::string(command) + "; echo code $? >&2; } | head -c 1 > /dev/null");
    EXPECT_EQ(cut.out, "code 0\n");
  }
}

TEST(Cli, TraceWritesIntoWhatIsNoFile) {
  const std::string recipe = recipe_file(), out = (temporary_folder() / "trace-out").string();
  const std::string trace = "$PRUN trace " + recipe + " --steps 1 --out ";
  EXPECT_EQ(shell(trace + "/dev/null").code, 0);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  ASSERT_EQ(shell(trace + "/dev/stdout > " + out).code, 0);
  std::ifstream file(out);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_NE(text.find("rank 0: "), std::string::npos) << "what was printed before is gone";
  EXPECT_NE(text.find("traceEvents"), std::string::npos);
  EXPECT_NE(text.find("wrote /dev/stdout"), std::string::npos) << "what was printed after is gone";
}

TEST(Cli, NonFiniteStopsOrSkipsAndNamesStepAndTensor) {
  const std::vector<std::string> sets = {"optimizer.plugin=sgd", "optimizer.lr=1e6", "optimizer.clip=0",
                                         "observer.0.plugin=console", "run.steps=6"};
  const Result stop = prun({recipe_file(sets)});
  EXPECT_EQ(stop.code, 15) << stop.out;
  EXPECT_NE(stop.out.find("the gradient of '"), std::string::npos) << stop.out;
  std::vector<std::string> skip = sets;
  skip.push_back("run.on_nonfinite=skip");
  const Result skipped = prun({recipe_file(skip)});
  EXPECT_EQ(skipped.code, 0) << skipped.out;
  EXPECT_NE(skipped.out.find("the update was skipped"), std::string::npos) << skipped.out;
}

// Builds without nvcc, or for a machine without a GPU, leave out the device cuda, and nccl and copies with
// it.
bool is_built(const std::string& kind, const std::string& name) {
  return fs::exists(fs::path(PRUN_TEST_PLUGINS) / ("libprun_" + kind + "_" + name + ".so"));
}
bool has_cuda() { return is_built("device", "cuda"); }

TEST(Cli, TheRecipeReferenceIsCurrent) {
  std::ifstream file(fs::path(PRUN_SOURCE_DIR) / "docs" / "recipe.md");
  std::string written((std::istreambuf_iterator<char>(file)), {});
  for (const auto& [kind, name] : {std::pair("device", "cuda"), {"comm", "nccl"}, {"comm", "copies"}}) {
    if (is_built(kind, name)) continue;
    const std::size_t begin = written.find(std::string("### ") + kind + " plugin `" + name + "`");
    ASSERT_NE(begin, std::string::npos) << name;
    written.erase(begin, written.find("### ", begin + 1) - begin);
  }
  EXPECT_EQ(prun({"reference"}).out, written) << "run: build/bin/prun reference > docs/recipe.md";
}

TEST(Cli, RecipesInConfigsAreGood) {
  int recipes = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(PRUN_SOURCE_DIR) / "configs")) {
    if (entry.path().extension() != ".toml") continue;
    std::ifstream file(entry.path());
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    if (!has_cuda() && text.find("plugin = \"cuda\"") != std::string::npos) continue;
    if (text.find("plugin = \"chat\"") != std::string::npos)
      continue;  // of a user's data: tests/chat plans them
    const Result result = shell("cd " PRUN_SOURCE_DIR " && $PRUN check " + entry.path().string());
    EXPECT_EQ(result.code, 0) << entry.path() << ": " << result.out;
    ++recipes;
  }
  EXPECT_GE(recipes, 9);
}

// With a GPU or without.
TEST(Cli, WhatAutoStandsForIsSaidInOneLine) {
  const std::string quickstart = std::string(PRUN_SOURCE_DIR) + "/configs/quickstart.toml";
  const std::string planned = prun({"plan", quickstart}).out, named = "device.plugin=cpu";
  EXPECT_EQ(planned.find("auto        device "), 0u) << planned;
  EXPECT_EQ(prun({"plan", quickstart, "--set", named}).out.find("auto  "), std::string::npos);
  EXPECT_EQ(shell("cd " PRUN_SOURCE_DIR " && $PRUN check " + quickstart).code, 0);
}

TEST(Cli, EveryVerbThatListsPluginsWorks) {
  EXPECT_NE(prun({"plugins", "list"}).out.find("GPT-2"), std::string::npos);
  EXPECT_NE(prun({"plugins", "inspect", "gpt"}).out.find("layers"), std::string::npos);
  EXPECT_NE(prun({"plugins", "check", "sgd"}).out.find("passed   updates what it is given"),
            std::string::npos);
  EXPECT_NE(prun({"plugins", "check", "gpt", "--options", "layrs = 2"}).out.find("did you mean 'layers'?"),
            std::string::npos);
  EXPECT_NE(prun({"plugins", "check", "spd"}).out.find("there is no plugin 'spd'"), std::string::npos);
  EXPECT_NE(prun({"plugins", "inspect", "schedule/zb-v"}).out.find("schedule plugin 'zb-v'"),
            std::string::npos);
  EXPECT_NE(prun({"plugins", "inspect", "1f1b"}).out.find("backward whole"), std::string::npos);
  EXPECT_NE(prun({"explain", "model.heads"}).out.find("heads"), std::string::npos);
  EXPECT_NE(prun({"explain", "zero.stage"}).out.find("declared by strategy plugin 'zero'"),
            std::string::npos);
  EXPECT_EQ(prun({"explain", "tensor"}).out.find("strategy plugin 'tensor'\n  Splits heads, MLP"), 0u);
  EXPECT_EQ(prun({"explain", "zb-v"}).code, 0);
  EXPECT_EQ(prun({"explain", "model.haeds"}).code, 2);
  EXPECT_NE(prun({"reference"}).out.find("rope_base"), std::string::npos);
}

}  // namespace
}  // namespace prun::test
