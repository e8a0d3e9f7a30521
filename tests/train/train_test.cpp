// Whole runs: against PyTorch, against themselves, against poisoned memory.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "base/safetensors.hpp"
#include "support/assembly_fixture.hpp"
#include "support/token_file.hpp"
#include "train/loop/training_run.hpp"

namespace prun::test::train_test {
namespace {

namespace fs = std::filesystem;

fs::path token_file(const SafetensorsFile& file, const std::string& name) {
  const auto bytes = file.bytes("tokens");
  std::vector<std::int32_t> tokens(bytes.size() / 4);
  std::memcpy(tokens.data(), bytes.data(), bytes.size());
  return write_tokens(temporary_folder() / (name + ".bin"), tokens);
}

std::vector<std::string> model_sets(const SafetensorsFile& file, const std::string& plugin) {
  std::vector<std::string> sets = {"model.plugin=" + plugin};
  const auto& metadata = file.index().metadata();
  for (const char* key : {"layers", "hidden", "heads", "ffn", "vocab", "seq", "tied"})
    sets.push_back(std::string("model.") + key + "=" + metadata.at(key));
  if (plugin == "llama") {
    for (const char* key : {"kv_heads", "qkv_bias"})
      sets.push_back(std::string("model.") + key + "=" + metadata.at(key));
    sets.push_back("model.rope_base=10000");
  }
  return sets;
}

void load_weights(Trainer& trainer, const SafetensorsFile& file) {
  const Assembly& assembly = trainer.assembly();
  assembly.each_parameter([&](Id id, std::int32_t instance) {
    const auto bytes = file.bytes(assembly.full_name(id, instance));
    ASSERT_EQ(static_cast<std::int64_t>(bytes.size()), assembly.program().value(id).bytes());
    trainer.memory().write(id, instance, 0, bytes);
  });
}

void matches_pytorch(const std::string& fixture, const std::string& plugin) {
  const SafetensorsFile file(fs::path(PRUN_TEST_FIXTURES) / (fixture + ".safetensors"));
  std::vector<std::string> sets = model_sets(file, plugin);
  sets.insert(sets.end(), {"data.path=" + token_file(file, fixture).string(), "data.shuffle=false",
                           "batch.global=4", "batch.micro=2", "run.poison=true"});
  const Assembly assembly(tiny_recipe(sets), plugins());
  Trainer trainer(assembly, plugins());
  load_weights(trainer, file);
  const auto bytes = file.bytes("losses");
  std::vector<double> theirs(bytes.size() / 8);
  std::memcpy(theirs.data(), bytes.data(), bytes.size());
  ASSERT_EQ(theirs.size(), 20u);
  for (std::size_t i = 0; i < theirs.size(); ++i)
    EXPECT_NEAR(trainer.step().loss / theirs[i], 1.0, 1e-5) << fixture << " step " << i + 1;
}

TEST(Train, GptMatchesPyTorch) { matches_pytorch("gpt", "gpt"); }
TEST(Train, LlamaMatchesPyTorch) { matches_pytorch("llama", "llama"); }
TEST(Train, QwenMatchesPyTorch) { matches_pytorch("qwen", "llama"); }

struct Outcome {
  std::vector<double> losses, parameters;
};

Outcome run(const std::vector<std::string>& sets, int steps = 20) {
  const Assembly assembly(tiny_recipe(sets), plugins());
  Trainer trainer(assembly, plugins());
  Outcome outcome;
  outcome.losses = train_steps(trainer, steps);
  outcome.parameters = parameters_of(trainer);
  return outcome;
}

TEST(Train, SameRecipeTwiceGivesTheSameBits) {
  for (const char* dropout : {"model.dropout=0", "model.dropout=0.1"}) {
    const Outcome a = run({dropout}), b = run({dropout});
    EXPECT_EQ(a.losses, b.losses);
    EXPECT_EQ(a.parameters, b.parameters);
  }
}

TEST(Train, BitsDoNotDependOnThreads) {
  const Outcome one = run({"device.threads=1"}), three = run({"device.threads=3"});
  EXPECT_EQ(one.losses, three.losses);
  EXPECT_EQ(one.parameters, three.parameters);
}

TEST(Train, PoisonedMemoryChangesNothing) {
  for (const char* compute : {"fp32", "bf16", "fp64"}) {
    const std::vector<std::string> sets = {
        std::string("precision.compute=") + compute,
        std::string("precision.state=") + (compute[2] == '6' ? "fp64" : "fp32"), "batch.micro=1",
        "model.dropout=0.1"};
    std::vector<std::string> poisoned = sets;
    poisoned.push_back("run.poison=true");
    const Outcome a = run(sets, 5), b = run(poisoned, 5);
    EXPECT_EQ(a.losses, b.losses) << compute;
    EXPECT_EQ(a.parameters, b.parameters) << compute;
    for (double loss : b.losses) EXPECT_TRUE(std::isfinite(loss)) << compute;
  }
}

TEST(Train, AccumulationEqualsOneLargeMicrobatch) {
  for (const char* model : {"gpt", "llama"}) {
    std::vector<std::string> sets = {std::string("model.plugin=") + model, "precision.compute=fp64",
                                     "precision.state=fp64"};
    if (std::string(model) == "llama") sets.insert(sets.end(), {"model.ffn=64", "model.kv_heads=2"});
    std::vector<std::string> four = sets, one = sets;
    four.push_back("batch.micro=1");
    one.push_back("batch.micro=4");
    const Outcome a = run(four), b = run(one);
    double worst = 0;
    for (std::size_t i = 0; i < a.parameters.size(); ++i)
      worst = std::max(worst, std::abs(a.parameters[i] - b.parameters[i]));
    EXPECT_LE(worst, 1e-9) << model;
  }
}

TEST(Train, ResumedEqualsUninterruptedBitForBit) {
  for (const std::vector<std::string>& extra :
       {std::vector<std::string>{"model.dropout=0.1"}, std::vector<std::string>{"precision.compute=bf16"}}) {
    fs::remove_all(temporary_folder() / "run");
    const Outcome whole = run(extra, 12);
    fs::path saved;
    std::vector<double> losses;
    {
      const Assembly assembly(tiny_recipe(extra), plugins());
      Trainer trainer(assembly, plugins());
      losses = train_steps(trainer, 7);
      saved = trainer.save();
    }
    std::vector<std::string> resumed = extra;
    resumed.push_back("run.resume=" + (temporary_folder() / "run").string());
    const Outcome rest = run(resumed, 5);
    losses.insert(losses.end(), rest.losses.begin(), rest.losses.end());
    EXPECT_EQ(losses, whole.losses);
    EXPECT_EQ(rest.parameters, whole.parameters);
  }
}

TEST(Train, LossFalls) {
  for (const char* compute : {"fp32", "bf16"}) {
    const Outcome outcome = run({std::string("precision.compute=") + compute, "run.steps=60"}, 60);
    EXPECT_LT(outcome.losses.back(), 0.8 * outcome.losses.front()) << compute;
  }
}

TEST(Train, TheFirstLossIsThatOfGuessing) {
  const Assembly assembly(tiny_recipe(), plugins());
  Trainer trainer(assembly, plugins());
  const StepResult result = trainer.step();
  EXPECT_EQ(result.targets, 4 * 16);
  EXPECT_NEAR(result.loss, std::log(64.0), 0.3);
}

TEST(Train, NonFiniteUpdateIsMaskedAndNamed) {
  const Assembly assembly(tiny_recipe(), plugins());
  Trainer trainer(assembly, plugins());
  trainer.step();
  const Id id = assembly.program().parameters()[2];
  const float nan = NAN;
  trainer.memory().write(id, assembly.program().value(id).segment == 1 ? 1 : 2, 0,
                         std::as_bytes(std::span(&nan, 1)));
  const std::vector<double> before = parameters_of(trainer);
  const StepResult result = trainer.step();
  EXPECT_FALSE(result.kept);
  EXPECT_EQ(trainer.progress().updates, 1);
  const std::vector<double> after = parameters_of(trainer);
  for (std::size_t i = 0; i < before.size(); ++i)
    ASSERT_TRUE(before[i] == after[i] || (std::isnan(before[i]) && std::isnan(after[i])));
}

std::string log_of_a_run(const std::string& name, std::vector<std::string> settings) {
  const fs::path out = temporary_folder() / name;
  settings.insert(settings.end(),
                  {"device.plugin=cpu-async", "device.tells=true", "run.steps=2", "run.out=" + out.string()});
  const Assembly assembly(tiny_recipe(settings), plugins());
  EXPECT_EQ(train(assembly, plugins(), "", {}), 0);
  std::ostringstream log;
  log << std::ifstream(out / "log.jsonl").rdbuf();
  return log.str();
}

// Nobody has started the observers then.
TEST(Run, WhatADeviceSaysOnceAllIsBoundIsInTheLog) {
  const std::string log = log_of_a_run("says", {});
  EXPECT_NE(log.find(" pieces of work are bound"), std::string::npos) << log;
}

// What it has bound by then may wait without harm only where nobody else is waited for.
TEST(Run, ADeviceLearnsBeforeItBindsThatOthersAreWaitedFor) {
  EXPECT_EQ(log_of_a_run("by-itself", {}).find("others are waited for"), std::string::npos);
  const std::string log =
      log_of_a_run("with-the-host", {"strategy.0.plugin=offload", "strategy.0.optimizer=host"});
  EXPECT_NE(log.find(" pieces of work are bound, others are waited for"), std::string::npos) << log;
}

TEST(Run, WhatTheDeviceDrawsIsInTheLog) {
  EXPECT_EQ(log_of_a_run("unknown-watts", {}).find("\"watts\""), std::string::npos);
  const std::string log = log_of_a_run("watts", {"device.watts=350"});
  EXPECT_NE(log.find(R"("watts":350,"clock_mhz":700,"joules_per_token":)"), std::string::npos) << log;
}

}  // namespace
}  // namespace prun::test::train_test
