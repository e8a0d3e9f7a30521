// Steps that are started while the one before them runs: the same bits as steps one by one, the same sequence
// of updates where one of them is masked, and nothing changed where that is to stop the run.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "base/safetensors.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "train/loop/local_ranks.hpp"
#include "train/loop/training_run.hpp"

namespace prun::test::run_ahead_test {
namespace {

constexpr int samples = 8, spoilt_step = 3, spoilt_sample = (spoilt_step - 1) * samples + 5, steps = 6;

const std::string spoilt =
    "[plugins]\nops = ['spoil']\n[[strategy]]\nplugin = 'spoil'\nsegment = 'block'\n"
    "tensor = 'qkv.bias'\nlayer = 2\nsample = " +
    std::to_string(spoilt_sample) + "\n";

bool is_gradient(const Program& program, Id id) {
  const std::int32_t bucket = program.value(id).bucket;
  return bucket >= 0 && program.buckets()[static_cast<std::size_t>(bucket)].own_gradients == id;
}

// Parameters and optimizer state, without what parameters were before: a step that is not kept changes that.
std::vector<std::byte> persistent_bytes(Trainer& trainer) {
  const Plan& plan = trainer.assembly().plan();
  const Program& program = trainer.assembly().program();
  std::vector<std::byte> all;
  for (std::size_t i = 1; i < plan.instances.size(); ++i) {
    if (plan.instances[i].is_stub()) continue;
    for (Id id : program.segment(plan.instances[i].segment).values) {
      const auto allocation = plan.allocations.find(id);
      if (allocation == plan.allocations.end() || is_gradient(program, id)) continue;
      if (program.value(id).name.ends_with(".before")) continue;
      if (allocation->second.region != Region::parameter && allocation->second.region != Region::state)
        continue;
      std::vector<std::byte> bytes(static_cast<std::size_t>(allocation->second.bytes));
      trainer.memory().read(id, static_cast<std::int32_t>(i), 0, bytes);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
  }
  return all;
}

struct Outcome {
  std::vector<StepResult> results;
  std::vector<std::byte> bytes;
  Progress progress;
};

class RunAhead : public testing::TestWithParam<std::tuple<Layout, Target>> {
 protected:
  Recipe recipe(const std::vector<std::string>& sets, const std::string& more = "") const {
    const auto& [layout, target] = GetParam();
    const std::vector<std::string> common = {"model.layers=4", "batch.global=" + std::to_string(samples),
                                             "optimizer.schedule.kind=cosine", "optimizer.schedule.warmup=2"};
    return tiny_recipe(with(with(common, with(layout.sets, target.sets)), sets), more + layout.text);
  }

  static std::vector<Outcome> train(const Recipe& recipe, bool ahead) {
    std::vector<Outcome> ranks(static_cast<std::size_t>(mesh_of(recipe).world()));
    run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
      Outcome& own = ranks[static_cast<std::size_t>(trainer.assembly().rank())];
      const auto take = [&](const StepResult& result) { own.results.push_back(result); };
      if (ahead) trainer.run(steps, take);
      for (int step = 0; step < steps && !ahead; ++step) take(trainer.step());
      own.bytes = persistent_bytes(trainer);
      own.progress = trainer.progress();
    });
    return ranks;
  }

  static void expect_same(const std::vector<Outcome>& a, const std::vector<Outcome>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t rank = 0; rank < a.size(); ++rank) {
      EXPECT_TRUE(a[rank].bytes == b[rank].bytes) << "rank " << rank;
      EXPECT_EQ(a[rank].progress.updates, b[rank].progress.updates);
      EXPECT_EQ(a[rank].progress.samples, b[rank].progress.samples);
      for (std::size_t step = 0; step < steps; ++step) {
        const StepResult &x = a[rank].results.at(step), &y = b[rank].results.at(step);
        SCOPED_TRACE("rank " + std::to_string(rank) + " step " + std::to_string(step + 1));
        EXPECT_EQ(x.loss, y.loss);
        EXPECT_EQ(x.lr, y.lr);
        EXPECT_EQ(x.kept, y.kept);
        EXPECT_EQ(x.non_finite, y.non_finite);
        EXPECT_EQ(x.targets, y.targets);
        if (x.kept) {
          EXPECT_EQ(x.grad_norm, y.grad_norm);
        }
      }
    }
  }
};

TEST_P(RunAhead, TheBitsAreThoseOfStepsOneByOne) {
  const Recipe tried = recipe({});
  expect_same(train(tried, true), train(tried, false));
}

TEST_P(RunAhead, AMaskedStepDoesNotCountAsAnUpdate) {
  const Recipe tried = recipe({"run.on_nonfinite=skip"}, spoilt);
  const std::vector<Outcome> ahead = train(tried, true);
  for (const Outcome& rank : ahead) {
    for (std::size_t step = 0; step < steps; ++step)
      EXPECT_EQ(rank.results[step].kept, step + 1 != spoilt_step) << step;
    EXPECT_EQ(rank.results[spoilt_step - 1].lr, rank.results[spoilt_step].lr) << "the rate went on";
    EXPECT_EQ(rank.progress.updates, steps - 1);
  }
  expect_same(ahead, train(tried, false));
}

TEST_P(RunAhead, WhatStopsTheRunMasksTheStepBehindIt) {
  run_local_ranks(recipe({}, spoilt), plugins().places(), [&](Trainer& trainer) {
    for (int step = 1; step < spoilt_step; ++step) EXPECT_TRUE(trainer.step().kept);
    const std::vector<std::byte> before = persistent_bytes(trainer);
    trainer.start();
    trainer.start();
    const StepResult result = trainer.finish();
    EXPECT_FALSE(result.kept);
    EXPECT_EQ(result.non_finite, "block.2.qkv.bias");
    EXPECT_EQ(trainer.progress().step, spoilt_step);
    trainer.start();  // and whatever is started before the host has looked
    for (int behind = 0; behind < 2; ++behind) {
      const StepResult masked = trainer.finish();
      EXPECT_FALSE(masked.kept);
      EXPECT_EQ(masked.non_finite, "");
    }
    EXPECT_EQ(trainer.progress().updates, spoilt_step - 1);
    EXPECT_TRUE(persistent_bytes(trainer) == before);
  });
}

TEST_P(RunAhead, AStopIsHeardByAllRanksInItsStepAndTheStepBehindItCompletes) {
  const Recipe tried = recipe({});
  const std::int64_t last = mesh_of(tried).world() - 1;
  run_local_ranks(tried, plugins().places(), [&](Trainer& trainer) {
    trainer.start();
    trainer.start(trainer.assembly().rank() == last);
    EXPECT_FALSE(trainer.finish().stop);
    trainer.start();
    EXPECT_TRUE(trainer.finish().stop);
    EXPECT_TRUE(trainer.finish().kept);
    EXPECT_EQ(trainer.running(), 0);
    EXPECT_EQ(trainer.progress().updates, 3);
    EXPECT_EQ(trainer.progress().samples, 3 * samples);
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, RunAhead,
                         testing::Combine(testing::ValuesIn(layouts_and_delayed()),
                                          testing::ValuesIn(targets())),
                         [](const auto& tested) {
                           return std::string(std::get<0>(tested.param).name) + "_" +
                                  std::get<1>(tested.param).name;
                         });

// A step is said to run once those before it are finished, however early it was started.
TEST(RunAheadAlone, TheStepThatOthersWaitForIsSaid) {
  const Assembly assembly(tiny_recipe(), plugins());
  std::vector<std::int64_t> said, finished;
  Membership membership;
  membership.before_step = [&](std::int64_t step) {
    EXPECT_EQ(static_cast<std::int64_t>(finished.size()), step - 1);
    said.push_back(step);
  };
  Trainer trainer(assembly, plugins(), membership);
  trainer.start();
  finished.reserve(steps);
  for (int step = 1; step <= steps; ++step) {
    if (step < steps) trainer.start();
    EXPECT_EQ(said.back(), step);
    finished.push_back(step);
    trainer.finish();
  }
  EXPECT_EQ(said, finished);
}

// ---------------------------------------------------------------- whole runs

class RunsAhead : public testing::TestWithParam<Target> {
 protected:
  std::string out(const std::string& name) const {
    return (temporary_folder() / ("ahead-" + std::string(GetParam().name) + "-" + name)).string();
  }
  int run(const std::string& name, const std::vector<std::string>& sets, const std::string& more = "") const {
    const Assembly assembly(tiny_recipe(with(with({"run.out=" + out(name)}, GetParam().sets), sets), more),
                            plugins());
    return train(assembly, plugins(), "");
  }
  // The steps that the log tells of, in its order.
  std::vector<int> told(const std::string& name) const {
    std::ifstream log(out(name) + "/log.jsonl");
    std::vector<int> all;
    for (std::string line; std::getline(log, line);)
      if (line.find("\"loss\":") != std::string::npos)
        all.push_back(std::stoi(line.substr(line.find("\"step\":") + 7)));
    return all;
  }
  // Of a checkpoint, by name.
  std::map<std::string, std::vector<std::byte>> saved(const std::string& name, int step) const {
    char folder[32];
    std::snprintf(folder, sizeof folder, "step-%08d", step);
    const SafetensorsFile file(std::filesystem::path(out(name)) / folder / "rank-00000.safetensors");
    std::map<std::string, std::vector<std::byte>> tensors;
    for (const SafetensorsEntry& tensor : file.entries()) {
      const std::span<const std::byte> bytes = file.bytes(tensor);
      tensors[tensor.name].assign(bytes.begin(), bytes.end());
    }
    return tensors;
  }
};

// Nothing runs ahead of a save: what is saved is what was there after its step.
TEST_P(RunsAhead, ASaveInTheMiddleIsOfItsStepAndResumesToTheSameBits) {
  ASSERT_EQ(run("whole", {"run.steps=7", "run.save_every=3"}), 0);
  EXPECT_EQ(told("whole"), (std::vector<int>{1, 2, 3, 4, 5, 6, 7}));
  ASSERT_EQ(run("short", {"run.steps=3", "run.save_every=3", "optimizer.schedule.steps=7"}), 0);
  EXPECT_TRUE(saved("whole", 3) == saved("short", 3));
  ASSERT_EQ(run("rest", {"run.steps=7", "run.save_every=7", "run.resume=" + out("short")}), 0);
  EXPECT_FALSE(saved("whole", 7).empty());
  EXPECT_TRUE(saved("whole", 7) == saved("rest", 7));
}

// The tiny recipe's tokens, one of them changed.
std::string tokens_with(int at, std::uint16_t token) {
  const Recipe recipe = tiny_recipe();
  const std::filesystem::path path = temporary_folder() / "one-bad-token.bin";
  std::filesystem::copy_file(recipe.text("data.path"), path,
                             std::filesystem::copy_options::overwrite_existing);
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(1024 + 2 * at);  // behind the header
  file.write(reinterpret_cast<const char*>(&token), 2);
  return path;
}

// It is found before the step before its own is finished, which is told all the same.
TEST_P(RunsAhead, ABatchThatCannotBeReadEndsTheRunBehindTheStepBefore) {
  const int batch = 4, seq = 16, in_step_3 = 2 * batch * seq + 5;
  try {
    run("bad-batch", {"run.steps=9", "data.shuffle=false", "data.path=" + tokens_with(in_step_3, 200)});
    FAIL() << "nothing was raised";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("token 200"), std::string::npos) << error.what();
  }
  EXPECT_EQ(told("bad-batch"), (std::vector<int>{1, 2}));
}

TEST_P(RunsAhead, WhatIsNotFiniteEndsTheRunAtItsStep) {
  try {
    run("diverged", {"run.steps=9", "batch.global=8", "model.layers=3"}, spoilt);
    FAIL() << "nothing was raised";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::diverged);
    EXPECT_NE(std::string(error.what()).find("step 3: the gradient of 'block.2.qkv.bias' is not finite"),
              std::string::npos)
        << error.what();
  }
  EXPECT_EQ(told("diverged"), (std::vector<int>{1, 2, 3}));
}

INSTANTIATE_TEST_SUITE_P(Devices, RunsAhead, testing::ValuesIn(targets()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace prun::test::run_ahead_test
