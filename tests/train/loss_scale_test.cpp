// The scale of the loss: how it moves, that every layout moves it alike, and that a run goes on with it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/random.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "train/assemble/loss_settings.hpp"
#include "train/loop/local_ranks.hpp"
#include "train/loop/training_run.hpp"

namespace prun::test::loss_scale_test {
namespace {

// ---------------------------------------------------------------- how it moves

struct Settings {
  double initial;
  int window, hysteresis;
  double least;
  bool consecutive;
};

Recipe recipe_with(const std::string& rule, const Settings& s) {
  const auto text = [](auto number) { return std::to_string(static_cast<std::int64_t>(number)); };
  return tiny_recipe(
      {"loss_scale.rule=" + rule, "loss_scale.initial=" + text(s.initial),
       "loss_scale.window=" + text(s.window), "loss_scale.hysteresis=" + text(s.hysteresis),
       "loss_scale.least=" + text(s.least),
       std::string("loss_scale.consecutive_hysteresis=") + (s.consecutive ? "true" : "false")});
}

// As DeepSpeed's documentation and behaviour have it, by the numbers of steps.
struct DeepSpeedModel {
  explicit DeepSpeedModel(const Settings& settings)
      : s(settings), scale(settings.initial), tolerance(settings.hysteresis) {}

  // Whether the run goes on.
  bool step(bool overflow) {
    const std::int64_t now = number++;
    if (overflow) {
      last_overflow = now;
      if (s.hysteresis != 1 && tolerance != 1) {
        --tolerance;
        return true;
      }
      if (scale == s.least) return false;
      scale = std::max(scale / 2, s.least);
      return true;
    }
    if (s.consecutive) tolerance = s.hysteresis;
    const std::int64_t stable = now - last_overflow - 1;
    if (stable <= 0 || stable % s.window != 0) return true;
    tolerance = s.hysteresis;
    scale *= 2;
    return true;
  }

  Settings s;
  double scale;
  std::int64_t tolerance, number = 0, last_overflow = -1;
};

// As Megatron-LM's: two trackers, of which that of growth begins anew and that of hysteresis may go below 0.
struct MegatronModel {
  explicit MegatronModel(const Settings& settings)
      : s(settings), scale(settings.initial), hysteresis(settings.hysteresis) {}

  bool step(bool overflow) {
    if (overflow) {
      growth = 0;
      if (--hysteresis <= 0) scale = std::max(scale * 0.5, s.least);
    } else if (++growth == s.window) {
      growth = 0;
      hysteresis = s.hysteresis;
      scale *= 2;
    }
    return true;
  }

  Settings s;
  double scale;
  std::int64_t hysteresis, growth = 0;
};

constexpr int flags = 5000;

// Stretches with few overflows and stretches with many; each seed another sequence.
std::vector<bool> overflows(std::uint64_t seed) {
  const RandomStream stream(seed, stream_id("overflows"));
  std::vector<bool> all;
  for (std::uint64_t i = 0; i < flags; ++i) {
    const std::uint32_t of_a_thousand = (i / 400 + seed) % 3 == 0 ? 2 : (i / 400 + seed) % 3 == 1 ? 60 : 400;
    all.push_back(stream.bits32(i) % 1000 < of_a_thousand);
  }
  return all;
}

template <class Model>
void expect_moves(const std::string& rule, const Settings& settings) {
  const LossScaler scaler(recipe_with(rule, settings));
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Model model(settings);
    LossScale scale = scaler.begin();
    ASSERT_EQ(scale.scale, settings.initial);
    int moved = 0, ended = 0;
    for (const bool overflow : overflows(seed)) {
      const double before = model.scale;
      const bool ends = overflow && scaler.is_spent(scale), goes_on = model.step(overflow);
      ASSERT_EQ(ends, !goes_on) << rule << " seed " << seed;
      if (ends) {  // a run would end: both begin again
        ++ended;
        model = Model(settings);
        scale = scaler.begin();
        continue;
      }
      scale = scaler.after(scale, !overflow);
      ASSERT_EQ(scale.scale, model.scale) << rule << " seed " << seed;
      moved += model.scale != before;
    }
    EXPECT_GT(moved, 2) << rule << " window " << settings.window;
    if (rule == "deepspeed" && settings.least == 1024 && settings.window == 50) {
      EXPECT_GT(ended, 0) << seed;
    }
  }
}

TEST(LossScaler, MovesAsDeepSpeedsDoes) {
  for (const bool consecutive : {false, true})
    for (const int window : {1, 2, 7, 50})
      for (const int hysteresis : {1, 2, 3}) {
        expect_moves<DeepSpeedModel>("deepspeed", {0x1p16, window, hysteresis, 1, consecutive});
        expect_moves<DeepSpeedModel>("deepspeed", {0x1p16, window, hysteresis, 1024, consecutive});
      }
}

TEST(LossScaler, MovesAsMegatronsDoes) {
  for (const int window : {1, 2, 7, 50})
    for (const int hysteresis : {1, 2, 3})
      for (const double least : {1.0, 1024.0})
        expect_moves<MegatronModel>("megatron", {0x1p32, window, hysteresis, least, false});
}

TEST(LossScaler, TheirFirstStepsAreThese) {
  const auto after = [](const char* rule, const std::string& steps) {
    const LossScaler scaler(recipe_with(rule, {256, 3, 2, 1, false}));
    LossScale scale = scaler.begin();
    for (const char step : steps) scale = scaler.after(scale, step == '.');
    return scale.scale;
  };
  // DeepSpeed's window begins with the second finite step, but for the first windows behind it.
  EXPECT_EQ(after("deepspeed", "..."), 256);
  EXPECT_EQ(after("deepspeed", "...."), 512);
  EXPECT_EQ(after("deepspeed", "......"), 512);
  EXPECT_EQ(after("deepspeed", "......."), 1024);
  EXPECT_EQ(after("megatron", ".."), 256);
  EXPECT_EQ(after("megatron", "..."), 512);
  EXPECT_EQ(after("megatron", "......"), 1024);
  for (const char* rule : {"deepspeed", "megatron"}) {
    EXPECT_EQ(after(rule, "x"), 256) << "one is borne";
    EXPECT_EQ(after(rule, "xx"), 128);
    EXPECT_EQ(after(rule, "xxx"), 64) << "from then on each counts";
    EXPECT_EQ(after(rule, "xx.x"), 64) << "a finite step alone restores nothing";
    EXPECT_EQ(after(rule, "xx....x"), 256) << "a rise does";
    EXPECT_EQ(after(rule, std::string(30, 'x')), 1);
  }
  EXPECT_EQ(after("static", "xxxx......."), 256);
}

TEST(LossScaler, BeginsWhereOthersDo) {
  const auto begin = [](const std::vector<std::string>& sets) {
    const LossScale scale = LossScaler(tiny_recipe(sets)).begin();
    return std::pair(scale.scale, scale.spared);
  };
  EXPECT_EQ(begin({"precision.compute=fp16"}), std::pair(65536.0, std::int64_t{2}));
  EXPECT_EQ(begin({"precision.compute=fp16", "loss_scale.rule=megatron"}),
            std::pair(4294967296.0, std::int64_t{2}));
  EXPECT_EQ(begin({}), std::pair(0.0, std::int64_t{0}));
  EXPECT_EQ(begin({"precision.compute=bf16"}).first, 0);
}

// ---------------------------------------------------------------- in every layout

// The scale in itself changes no bit: in fp32 it is a power of two throughout.
struct Outcome {
  std::vector<StepResult> results;
  std::vector<double> parameters;
  Progress progress;
};

constexpr int steps = 12;

std::vector<Outcome> trained(const Recipe& recipe, bool ahead = true, int count = steps, bool save = false) {
  std::vector<Outcome> ranks(static_cast<std::size_t>(mesh_of(recipe).world()));
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    Outcome& own = ranks[static_cast<std::size_t>(trainer.assembly().rank())];
    const auto take = [&](const StepResult& result) { own.results.push_back(result); };
    if (ahead) trainer.run(count, take);
    for (int step = 0; step < count && !ahead; ++step) take(trainer.step());
    own.parameters = parameters_of(trainer);
    own.progress = trainer.progress();
    if (save) trainer.save();
  });
  return ranks;
}

void expect_same(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.parameters, b.parameters);
  EXPECT_EQ(a.progress.updates, b.progress.updates);
  EXPECT_EQ(a.progress.loss_scale, b.progress.loss_scale);
  ASSERT_EQ(a.results.size(), b.results.size());
  for (std::size_t step = 0; step < a.results.size(); ++step) {
    EXPECT_EQ(a.results[step].loss, b.results[step].loss) << step;
    EXPECT_EQ(a.results[step].lr, b.results[step].lr) << step;
    EXPECT_EQ(a.results[step].loss_scale, b.results[step].loss_scale) << step;
    ASSERT_EQ(a.results[step].kept, b.results[step].kept) << step;
    if (a.results[step].kept) {
      EXPECT_EQ(a.results[step].grad_norm, b.results[step].grad_norm) << step;
    }
  }
}

class LossScales : public testing::TestWithParam<std::tuple<Layout, Target>> {
 protected:
  Recipe recipe(const std::vector<std::string>& sets) const {
    const auto& [layout, target] = GetParam();
    const std::vector<std::string> common = {"model.layers=4", "batch.global=8",
                                             "optimizer.schedule.kind=cosine", "optimizer.schedule.warmup=2"};
    return tiny_recipe(with(with(common, with(layout.sets, target.sets)), sets), layout.text);
  }
};

TEST_P(LossScales, APowerOfTwoChangesNoBit) {
  const Recipe plain = recipe({}), scaled = recipe({"loss_scale.rule=static", "loss_scale.initial=1024"});
  const std::vector<Outcome> a = trained(plain), b = trained(scaled);
  for (std::size_t rank = 0; rank < a.size(); ++rank) {
    EXPECT_EQ(a[rank].parameters, b[rank].parameters);
    for (std::size_t step = 0; step < steps; ++step) {
      EXPECT_EQ(a[rank].results[step].loss, b[rank].results[step].loss);
      EXPECT_EQ(a[rank].results[step].grad_norm, b[rank].results[step].grad_norm);
      EXPECT_EQ(b[rank].results[step].loss_scale, 1024);
    }
  }
}

// So large that products with it are infinite: the steps until it has fallen are left out by all ranks.
TEST_P(LossScales, OverflowsAreSkippedAtTheSameStepsAndTheScaleFalls) {
  const std::vector<std::string> huge = {"precision.compute=fp16", "precision.master=fp32",
                                         "loss_scale.rule=megatron", "loss_scale.initial=1073741824",
                                         "loss_scale.hysteresis=1"};
  const Recipe tried = recipe(huge);
  const std::vector<Outcome> ahead = trained(tried, true, 24);
  std::int64_t skipped = 0;
  while (!ahead[0].results[static_cast<std::size_t>(skipped)].kept) ++skipped;
  EXPECT_GT(skipped, 3);
  EXPECT_LT(skipped, 20);
  for (const Outcome& rank : ahead) {
    double scale = 0x1p30;
    for (std::int64_t step = 0; step < 24; ++step) {
      const StepResult& result = rank.results[static_cast<std::size_t>(step)];
      EXPECT_EQ(result.loss_scale, scale) << step;
      if (step < skipped) {
        EXPECT_FALSE(result.kept) << step;
        EXPECT_TRUE(std::isfinite(result.loss)) << "forward is not scaled";
        EXPECT_EQ(result.lr, rank.results[0].lr) << "the rate went on";
      }
      if (!result.kept) scale /= 2;
    }
    EXPECT_EQ(rank.progress.loss_scale.scale, scale);
    EXPECT_EQ(rank.progress.step, 24);
  }
  const std::vector<Outcome> one_by_one = trained(tried, false, 24);
  for (std::size_t rank = 0; rank < ahead.size(); ++rank) expect_same(ahead[rank], one_by_one[rank]);
}

TEST_P(LossScales, ARunGoesOnWithIt) {
  const auto& [layout, target] = GetParam();
  const std::string out =
      (temporary_folder() / ("scale-" + std::string(layout.name) + "-" + target.name)).string();
  // It falls, rises and falls on either side of the save.
  const Recipe tried = recipe({"precision.compute=fp16", "precision.master=fp32", "loss_scale.rule=deepspeed",
                               "loss_scale.initial=1048576", "loss_scale.window=3", "run.out=" + out});
  const std::vector<Outcome> through = trained(tried, true, 20);
  trained(tried, true, 9, true);
  const std::vector<Outcome> on = trained(tried.with("run.resume", out), true, 11);
  for (std::size_t rank = 0; rank < on.size(); ++rank) {
    Outcome rest = through[rank];
    rest.results.erase(rest.results.begin(), rest.results.begin() + 9);
    expect_same(on[rank], rest);
  }
  std::filesystem::remove_all(out);
}

// On the asynchronous device, where steps run ahead, those that differ in who has what.
std::vector<std::tuple<Layout, Target>> tried() {
  std::vector<std::tuple<Layout, Target>> all;
  for (const Target& target : targets())
    for (const Layout& layout : layouts()) {
      const std::string name = layout.name;
      const bool everywhere = name == "zero2" || name == "tensor";
      if (name != "formats" && name != "bf16" && (everywhere || std::string(target.name) == "cpu"))
        all.emplace_back(layout, target);
    }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Layouts, LossScales, testing::ValuesIn(tried()), [](const auto& tested) {
  return std::string(std::get<0>(tested.param).name) + "_" + std::get<1>(tested.param).name;
});

// ---------------------------------------------------------------- whole runs

std::string run_of(const std::vector<std::string>& sets, const std::string& out) {
  try {
    const Assembly assembly(
        tiny_recipe(with({"run.out=" + out, "precision.compute=fp16", "run.steps=30"}, sets)), plugins());
    EXPECT_EQ(train(assembly, plugins(), ""), 0);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::diverged);
    return error.what();
  }
  return "";
}

std::string log_of(const std::string& out) {
  std::ifstream file(out + "/log.jsonl");
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(LossScaleRuns, TwentyOverflowsInARowPass) {
  const std::string out = (temporary_folder() / "twenty").string();
  EXPECT_EQ(run_of({"loss_scale.initial=633825300114114700748351602688", "loss_scale.hysteresis=2"}, out),
            "");
  const std::string log = log_of(out);
  std::size_t skipped = 0;
  for (std::size_t at = log.find("\"kept\":false"); at != std::string::npos;
       at = log.find("\"kept\":false", at + 1))
    ++skipped;
  EXPECT_GE(skipped, 20u);
}

TEST(LossScaleRuns, TheLogHasTheScaleAndWhatBecameOfTheStep) {
  const std::string out = (temporary_folder() / "told").string();
  EXPECT_EQ(run_of({"loss_scale.initial=1099511627776", "loss_scale.hysteresis=1", "run.steps=30"}, out), "");
  const std::string log = log_of(out);
  EXPECT_NE(log.find("\"kept\":false"), std::string::npos);
  EXPECT_NE(log.find("\"loss_scale\":1099511627776"), std::string::npos) << log.substr(0, 2000);
  EXPECT_NE(log.find("the update was skipped; the loss scale falls from"), std::string::npos);
}

TEST(LossScaleRuns, DeepSpeedsEndsAtTheLeastAndMegatronsGoesOn) {
  const std::vector<std::string> least = {"loss_scale.initial=1099511627776",
                                          "loss_scale.least=549755813888"};
  const std::string out = (temporary_folder() / "least").string();
  const std::string said = run_of(least, out);
  // Two that the hysteresis takes, of which the second lets it fall, and one more.
  EXPECT_NE(said.find("step 3: "), std::string::npos) << said;
  EXPECT_NE(said.find("the least that loss_scale.least allows"), std::string::npos) << said;
  EXPECT_EQ(run_of(with(least, {"loss_scale.rule=megatron"}), out), "");
}

TEST(LossScaleRefusals, AreNoneOfAScaleThatStaysInARunThatMayEnd) {
  const Recipe recipe = tiny_recipe({"precision.compute=fp16", "run.on_nonfinite=stop",
                                     "loss_scale.rule=static", "loss_scale.initial=128"});
  EXPECT_NO_THROW(Assembly(recipe, plugins()));
}

}  // namespace
}  // namespace prun::test::loss_scale_test
