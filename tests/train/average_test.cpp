// The average of the weights (strategy average): the sum that it stands for, in every layout, saved, gone on
// with, evaluated and exported.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "cli/binary.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "support/saved.hpp"
#include "support/temp_folder.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::average_test {
namespace {

constexpr double decay = 0.8;
constexpr int steps = 6;
const std::string end = ".average";

std::string mesh(const std::string& axes) { return "[mesh]\n" + axes + "\n"; }
const std::string data = "[[strategy]]\nplugin = 'data'\n", by_heads = "[[strategy]]\nplugin = 'tensor'\n",
                  pipeline = "[[strategy]]\nplugin = 'pipeline'\nschedule = '1f1b'\n",
                  by_muon = "[[optimizer.group]]\nmatch = '*'\nof = 'matrices'\nplugin = 'muon'\n";
const std::string kept = "[[strategy]]\nplugin = 'average'\ndecay = 0.8\n",
                  evaluated = kept + "evaluate = true\n";
std::string zero(int stage) {
  return "[[strategy]]\nplugin = 'zero'\nstage = " + std::to_string(stage) + "\n";
}

const std::vector<std::string> fp64 = {"precision.compute=fp64", "precision.state=fp64"},
                               bf16 = {"precision.compute=bf16"},
                               narrow = {"precision.compute=bf16", "precision.master=split",
                                         "precision.moments=bf16"};

std::vector<Layout> all_layouts(const std::string& drives) {
  return {{"one", "", fp64},
          {"data", mesh("dp = 2") + data, fp64},
          {"tensor", mesh("tp = 2") + by_heads + "sequence = true\n", fp64},
          {"pipeline", mesh("pp = 2") + pipeline, fp64},
          {"zero1", mesh("dp = 2") + data + zero(1), fp64},
          {"zero2", mesh("dp = 2") + data + zero(2), narrow},
          {"zero3", mesh("dp = 2") + data + zero(3), with(fp64, {"model.dropout=0.1"})},
          {"zero3_bf16", mesh("dp = 2") + data + zero(3), bf16},
          {"zero3_tensor", mesh("dp = 2\ntp = 2") + data + by_heads + zero(3), fp64},
          {"pipeline_zero1", mesh("pp = 2\ndp = 2") + data + pipeline + zero(1), fp64},
          {"offload", offloaded(true, true), with(narrow, {"batch.micro=8"})},
          {"offload_here", updated_here, fp64},
          {"offload_tiles", offloaded() + by_tensor, {}},
          {"drives", offloaded_to_drives(drives), narrow},
          {"eight_bits", "", with(bf16, {"precision.moments=8bit"})},
          {"no_master", "", with(bf16, {"precision.state=bf16"})},
          {"sgd", mesh("dp = 2") + data + zero(2), with(fp64, {"optimizer.plugin=sgd"})},
          {"muon", mesh("dp = 2") + data + zero(1) + by_muon, fp64},
          {"adafactor", mesh("tp = 2") + by_heads, with(fp64, {"optimizer.plugin=adafactor"})}};
}

std::vector<double> numbers_of(const CheckpointFiles& files, const std::string& name) {
  const CheckpointFiles::Tensor& tensor = files.tensor(name);
  const TensorSlice all{name, tensor.type, whole_slice(tensor.shape)};
  std::vector<std::byte> bytes(static_cast<std::size_t>(all.bytes()));
  files.read(all, bytes);
  std::vector<double> numbers(static_cast<std::size_t>(all.slice.count));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    if (tensor.type == DType::f64) {
      std::memcpy(&numbers[i], bytes.data() + i * sizeof(double), sizeof(double));
    } else if (tensor.type == DType::f32) {
      float number = 0;
      std::memcpy(&number, bytes.data() + i * sizeof number, sizeof number);
      numbers[i] = static_cast<double>(number);
    } else {
      prun::bf16 number;
      std::memcpy(&number, bytes.data() + i * sizeof number, sizeof number);
      numbers[i] = static_cast<double>(static_cast<float>(number));
    }
  return numbers;
}

class Average : public testing::Test {
 protected:
  std::string out(const std::string& name) const { return folder_ / name; }
  static std::string step(int number) { return "/step-0000000" + std::to_string(number); }

  Recipe recipe_of(const Layout& layout, const std::string& name, const std::vector<std::string>& more = {},
                   const std::string& average = kept) const {
    std::vector<std::string> sets = {"model.layers=4",      "model.hidden=16",  "model.heads=4",
                                     "model.ffn=32",        "batch.micro=1",    "batch.global=8",
                                     "device.threads=1",    "run.poison=true",  "comm.default=meet",
                                     "optimizer.lr=0.01",   "device.pin=false", "data.validation=0.1",
                                     "run.out=" + out(name)};
    return tiny_recipe(with(with(sets, layout.sets), more), layout.text + average);
  }

  // Saves after each of the steps.
  static void train(const Recipe& recipe, int count) {
    run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
      for (int i = 0; i < count; ++i) {
        train_steps(trainer, 1);
        trainer.save();
      }
    });
  }

  // By the weights that each step has left.
  void expect_is_the_sum(const std::string& name) const {
    std::map<std::string, std::vector<double>> sums;
    double counted = 0;
    for (int number = 1; number <= steps; ++number) {
      const CheckpointFiles files(out(name) + step(number));
      counted = decay * counted + 1;
      for (const auto& [tensor, ignored] : files.tensors()) {
        if (!tensor.ends_with(end)) continue;
        const std::vector<double> weights =
            numbers_of(files, weights_of(files, tensor.substr(0, tensor.size() - end.size())));
        std::vector<double>& sum = sums[tensor];
        sum.resize(weights.size());
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = decay * sum[i] + weights[i];
      }
    }
    const CheckpointFiles last(out(name) + step(steps));
    EXPECT_GT(sums.size(), 10u) << name;
    for (const auto& [tensor, sum] : sums) {
      const bool wide = last.tensor(tensor).type == DType::f64;
      const std::vector<double> average = numbers_of(last, tensor);
      ASSERT_EQ(average.size(), sum.size());
      for (std::size_t i = 0; i < sum.size(); ++i)
        ASSERT_NEAR(average[i], sum[i] / counted, (wide ? 1e-15 : 1e-6) * std::max(1.0, std::abs(average[i])))
            << name << ", " << tensor << ", element " << i;
    }
  }

  const TempFolder folder_;
};

TEST_F(Average, IsTheSumThatItStandsForInEveryLayout) {
  const std::string drives = out("drives-of-state");
  std::filesystem::create_directory(drives);
  for (const Layout& layout : all_layouts(drives)) {
    train(recipe_of(layout, layout.name), steps);
    expect_is_the_sum(layout.name);
  }
}

TEST_F(Average, ARunThatGoesOnHasTheBitsOfOneThatNeverStopped) {
  const std::string drives = out("drives-of-state");
  std::filesystem::create_directory(drives);
  for (const Layout& layout : all_layouts(drives)) {
    train(recipe_of(layout, "through"), steps);
    train(recipe_of(layout, "first"), 3);
    train(recipe_of(layout, "second", {"run.resume=" + out("first")}), steps - 3);
    EXPECT_TRUE(saved_in(out("through") + step(steps)) == saved_in(out("second") + step(steps)))
        << layout.name;
    for (const char* name : {"through", "first", "second"}) std::filesystem::remove_all(out(name));
  }
}

TEST_F(Average, GoesOnInAnyLayoutFromAnyOther) {
  std::vector<Layout> layouts;
  for (const Layout& layout : all_layouts(""))
    if (layout.sets == fp64 && layout.text.find("offload") == std::string::npos &&
        layout.text.find("muon") == std::string::npos)
      layouts.push_back(layout);
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const Layout& next = layouts[(i + 1) % layouts.size()];
    train(recipe_of(layouts[i], "from"), 2);
    run_local_ranks(recipe_of(next, "to", {"run.resume=" + out("from")}), plugins().places(),
                    [&](Trainer& trainer) { trainer.save(); });
    EXPECT_TRUE(saved_in(out("from") + step(2)) == saved_in(out("to") + step(2)))
        << layouts[i].name << " to " << next.name;
    for (const char* name : {"from", "to"}) std::filesystem::remove_all(out(name));
  }
}

// Four bytes a parameter, in parts where the state is.
TEST_F(Average, IsPartOfThePlan) {
  const auto bytes = [&](const std::string& text) {
    const Assembly assembly(tiny_recipe({"batch.pad=true"}, text), plugins());
    return persistent_bytes(assembly.program(), assembly.plan().instances);
  };
  const auto held = [&](const std::string& text) {
    const Assembly assembly(tiny_recipe({"batch.pad=true"}, text), plugins());
    std::int64_t all = 0;
    for (const HeldSlice& slice : assembly.held_slices()) all += slice.bytes();
    return all;
  };
  EXPECT_EQ(bytes(kept) * 3, bytes("") * 4);  // weights, two moments and the average in fp32
  const std::string in_parts = mesh("dp = 2") + data + zero(3) + kept;
  EXPECT_NEAR(static_cast<double>(held(in_parts)), static_cast<double>(held(kept)) / 2,
              static_cast<double>(held(kept)) / 50);
}

TEST_F(Average, ACheckpointWithoutOneIsRefused) {
  const Layout one{"one", "", {}};
  train(recipe_of(one, "without", {"comm.default=auto"}, ""), 1);
  try {
    train(recipe_of(one, "next", {"run.resume=" + out("without")}), 1);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("has no tensor 'embedding.token.average'"), std::string::npos)
        << error.what();
    EXPECT_EQ(exit_code(error.code()), 2);
  }
  const Result eval = prun({"eval", out("without"), "--average"});
  EXPECT_EQ(eval.code, 2);
  EXPECT_NE(eval.out.find("cannot use state 'average' in place of the weights"), std::string::npos)
      << eval.out;
}

double loss_of(const std::vector<std::string>& words) {
  std::vector<std::string> all = {"eval"};
  all.insert(all.end(), words.begin(), words.end());
  all.emplace_back("--json");
  const Result result = prun(all);
  EXPECT_EQ(result.code, 0) << result.out;
  const std::size_t at = result.out.find("\"eval_loss\":");
  EXPECT_NE(at, std::string::npos) << result.out;
  return std::stod(result.out.substr(at + 12));
}

const std::vector<std::string> asked = {"eval.every=2", "eval.batches=2"};

// Of each of three steps, by the first rank: its loss, and those of an evaluation behind it.
struct Looked {
  std::vector<double> trained, plain, averaged;
};
double of_average(const Evaluation& evaluation) {
  EXPECT_EQ(evaluation.sets.at(0).first, "average");
  return evaluation.sets.at(0).second.loss;
}
Looked looked_at(const Recipe& recipe) {
  Looked looked;
  const bool averages = recipe.integer("eval.every") > 0;
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    const bool tells = trainer.assembly().rank() == 0;
    if (averages) {
      EXPECT_TRUE(trainer.evaluate().sets.empty()) << "an average before the first update";
    }
    for (int i = 0; i < 3; ++i) {
      const double trained = train_steps(trainer, 1).front();
      const Evaluation first = averages ? trainer.evaluate() : Evaluation{},
                       again = averages ? trainer.evaluate() : Evaluation{};
      if (!tells) continue;
      EXPECT_EQ(first.whole.loss, again.whole.loss);
      if (averages) {
        EXPECT_EQ(of_average(first), of_average(again));
      }
      looked.trained.push_back(trained);
      looked.plain.push_back(again.whole.loss);
      looked.averaged.push_back(averages ? of_average(again) : 0);
    }
    trainer.save();
  });
  return looked;
}

// Losses of averages are those of one rank, and nothing of the run or its checkpoint is moved by them.
TEST_F(Average, IsEvaluatedAsTrainingGoesOnInEveryLayout) {
  const std::string drives = out("drives-of-state");
  std::filesystem::create_directory(drives);
  const Looked one = looked_at(recipe_of({"one", "", fp64}, "of_one", asked, evaluated));
  for (const Layout& layout : all_layouts(drives)) {
    if (std::string_view(layout.name) == "no_master") continue;
    const Looked looked = looked_at(recipe_of(layout, "looked", asked, evaluated)),
                 quiet = looked_at(recipe_of(layout, "quiet"));
    EXPECT_EQ(looked.trained, quiet.trained) << layout.name;
    EXPECT_TRUE(saved_in(out("looked") + step(3)) == saved_in(out("quiet") + step(3))) << layout.name;
    EXPECT_NE(looked.averaged.back(), looked.plain.back()) << layout.name;
    const bool comparable = layout.sets == fp64 && layout.text.find("muon") == std::string::npos;
    for (std::size_t i = 0; comparable && i < one.averaged.size(); ++i)
      EXPECT_NEAR(looked.averaged[i], one.averaged[i], 1e-12) << layout.name;
    for (const char* name : {"looked", "quiet"}) std::filesystem::remove_all(out(name));
  }
}

// The loss that a run tells of its average is that of its checkpoint's, read from the files.
TEST_F(Average, IsEvaluatedAsItsCheckpointIs) {
  for (const Layout& layout :
       {Layout{"fp32", "", {}}, Layout{"split", mesh("dp = 2") + data + zero(2), narrow},
        Layout{"bf16", mesh("dp = 2") + data + zero(1), bf16}}) {
    const Recipe recipe = recipe_of(layout, "run", with(asked, {"comm.default=auto"}), evaluated);
    const Looked looked = looked_at(recipe);
    EXPECT_NEAR(loss_of({out("run"), "--average"}), looked.averaged.back(), 1e-7) << layout.name;
    EXPECT_NEAR(loss_of({out("run")}), looked.plain.back(), 1e-7) << layout.name;
    std::filesystem::remove_all(out("run"));
  }
}

TEST_F(Average, WeightsThatWouldNotComeBackAreNotEvaluated) {
  const Layout layout{"no_master", "", with(bf16, {"precision.state=bf16", "precision.gradient=fp32"})};
  try {
    looked_at(recipe_of(layout, "run", asked, evaluated));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("is stored only in bf16, not in fp32"), std::string::npos)
        << error.what();
    EXPECT_EQ(exit_code(error.code()), 2);
  }
}

TEST_F(Average, IsEvaluatedOnlyWhereThereAreEvaluations) {
  try {
    const Assembly assembly(recipe_of({"one", "", {}}, "run", {}, evaluated), plugins());
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("evaluate goes by evaluations"), std::string::npos)
        << error.what();
  }
}

// What is exported of an average is evaluated as the average is.
TEST_F(Average, IsEvaluatedAndExported) {
  for (const Layout& layout :
       {Layout{"fp32", "", {}}, Layout{"split", mesh("dp = 2") + data + zero(2), narrow}}) {
    train(recipe_of(layout, "run", {"comm.default=auto"}), steps);
    const double trained = loss_of({out("run")}), averaged = loss_of({out("run"), "--average"});
    EXPECT_NE(trained, averaged);
    EXPECT_NEAR(trained, averaged, 0.5);
    ASSERT_EQ(prun({"export", out("run"), "--out", out("model"), "--average"}).code, 0);
    const Layout one{"one", "", {}};
    train(recipe_of(one, "again", {"model.init=" + out("model"), "optimizer.lr=0", "comm.default=auto"}, ""),
          1);
    EXPECT_NEAR(loss_of({out("again")}), averaged, layout.sets.empty() ? 1e-7 : 1e-3) << layout.name;
    const Result text = prun({"generate", out("run"), "--tokens", "1,2,3", "--average", "--max-tokens", "3"});
    EXPECT_EQ(text.code, 0) << text.out;
    for (const char* name : {"run", "model", "again"}) std::filesystem::remove_all(out(name));
  }
}

}  // namespace
}  // namespace prun::test::average_test
