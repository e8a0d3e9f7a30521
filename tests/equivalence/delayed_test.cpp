// Schedules that train with weights of one update before: one rank does as it is written,
// W(t+1) = W(t) - rate * grad f(W(t-1)), and every layout computes what one rank does.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "inspect/verify.hpp"
#include "support/assembly_fixture.hpp"
#include "support/saved.hpp"
#include "support/temp_folder.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::delayed_test {
namespace {

using Sets = std::vector<std::string>;

Sets with_all(Sets sets, const Sets& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

const Sets small = {"model.hidden=16", "model.heads=2",    "model.ffn=32",           "model.seq=8",
                    "model.layers=4",  "model.tied=false", "device.threads=1",       "device.pin=false",
                    "run.poison=true", "batch.micro=1",    "precision.compute=fp64", "precision.state=fp64",
                    "batch.global=8"};

std::string pipeline(int ranks, const std::string& more_mesh = "") {
  return "[mesh]\npp = " + std::to_string(ranks) + "\n" + more_mesh +
         "[[strategy]]\nplugin = 'pipeline'\nschedule = '2bw'\n";
}

// ---------------------------------------------------------------- one rank

// What a rank holds of parameters, of their gradients or of what they were before, name by name.
std::map<std::string, std::vector<double>> numbers_of(Trainer& trainer, Kept kept) {
  std::map<std::string, std::vector<double>> all;
  const Assembly& assembly = trainer.assembly();
  assembly.each_parameter([&](Id id, std::int32_t instance) {
    each_held(assembly.program(), assembly.rank(), id, instance, kept, [&](const HeldRun& run) {
      const std::vector<std::byte> bytes = run.read(trainer.memory());
      const auto* const first = reinterpret_cast<const double*>(bytes.data());
      all[assembly.full_name(id, instance)].assign(first, first + run.count);
    });
  });
  return all;
}

void put_parameters(Trainer& trainer, const std::map<std::string, std::vector<double>>& numbers) {
  const Assembly& assembly = trainer.assembly();
  assembly.each_parameter([&](Id id, std::int32_t instance) {
    trainer.memory().write(id, instance, 0,
                           std::as_bytes(std::span(numbers.at(assembly.full_name(id, instance)))));
  });
}

TEST(Delayed, OneRankTakesTheGradientWhereItWasOneUpdateBefore) {
  constexpr double rate = 0.05;
  const Sets sets = with_all(small, {"optimizer.plugin=sgd", "optimizer.lr=0.05", "optimizer.clip=0"});
  const Assembly delayed(tiny_recipe(sets, pipeline(1)), plugins()), usual(tiny_recipe(sets), plugins());
  Trainer trainer(delayed, plugins()), other(usual, plugins());
  auto before = numbers_of(trainer, Kept::parameter), now = before;
  EXPECT_EQ(numbers_of(trainer, Kept::before), now);
  for (int step = 0; step < 5; ++step) {
    put_parameters(other, before);  // W(t-1)
    const double loss = other.step().loss;
    EXPECT_EQ(trainer.step().loss, loss) << step;
    const auto gradients = numbers_of(trainer, Kept::gradient);
    EXPECT_EQ(gradients, numbers_of(other, Kept::gradient)) << step;
    before = now;  // W(t)
    now = numbers_of(trainer, Kept::parameter);
    EXPECT_EQ(numbers_of(trainer, Kept::before), before) << step;
    for (const auto& [name, numbers] : now)
      for (std::size_t i = 0; i < numbers.size(); ++i)
        ASSERT_NEAR(numbers[i], before[name][i] - rate * gradients.at(name)[i], 1e-15) << name << ' ' << step;
  }
}

TEST(Delayed, AStepThatIsNotKeptLeavesWeightsAsTheyWere) {
  // Sample 13 is of step 2, and spoils it.
  const std::string spoils =
      "[plugins]\nops = ['spoil']\n[[strategy]]\nplugin = 'spoil'\nsegment = 'block'\n"
      "tensor = 'qkv.bias'\nlayer = 2\nsample = 13\n";
  for (const int ranks : {1, 2}) {
    const Recipe recipe =
        tiny_recipe(with_all(small, {"run.poison=false", "run.on_nonfinite=skip", "precision.compute=fp32",
                                     "precision.state=fp32", "optimizer.schedule.kind=cosine"}),
                    spoils + pipeline(ranks));
    run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
      const double rate = trainer.step().lr;
      const std::vector<double> weights = parameters_of(trainer);
      const StepResult spoilt = trainer.step();
      EXPECT_FALSE(spoilt.kept);
      EXPECT_EQ(parameters_of(trainer), weights);
      EXPECT_EQ(trainer.step().lr, spoilt.lr);
      EXPECT_NE(spoilt.lr, rate);
      EXPECT_EQ(trainer.progress().updates, 2);
    });
  }
}

// ---------------------------------------------------------------- layouts

struct Drawn {
  unsigned seed = 0;
  std::string text;
  Sets sets;
};

void PrintTo(const Drawn& drawn, std::ostream* out) { *out << drawn.text; }

// Tensor, data, ZeRO-1, recomputation, tied tables, clip, odd numbers of microbatches.
Drawn draw(unsigned seed) {
  std::mt19937 random(seed);
  const auto pick = [&](std::initializer_list<int> list) {
    return list.begin()[std::uniform_int_distribution<std::size_t>(0, list.size() - 1)(random)];
  };
  const int pp = pick({2, 2, 3, 4}), dp = pick({1, 2}), tp = pp < 4 ? pick({1, 2}) : 1,
            microbatches = pp + pick({0, 0, 1, 2, 5});
  std::ostringstream text;
  text << "[mesh]\n";
  if (pick({0, 1}) == 0)
    text << "dp = " << dp << "\npp = " << pp << "\ntp = " << tp << "\n";
  else
    text << "pp = " << pp << "\ntp = " << tp << "\ndp = " << dp << "\n";
  if (dp > 1) text << "[[strategy]]\nplugin = 'data'\n";
  if (tp > 1) text << "[[strategy]]\nplugin = 'tensor'\nsequence = " << (pick({0, 1}) ? "true\n" : "false\n");
  if (dp > 1 && pick({0, 1, 1}) == 1) text << "[[strategy]]\nplugin = 'zero'\nstage = 1\n";
  switch (pick({0, 0, 1, 2})) {
    case 1: text << "[[strategy]]\nplugin = 'recompute'\nmode = 'full'\n"; break;
    case 2: text << "[[strategy]]\nplugin = 'recompute'\nmode = 'selective'\nops = ['attention']\n"; break;
  }
  text << "[[strategy]]\nplugin = 'pipeline'\nschedule = '2bw'\n";
  Sets sets = {"batch.global=" + std::to_string(microbatches * dp),
               std::string("model.tied=") + (pick({0, 1}) ? "true" : "false"),
               std::string("optimizer.clip=") + (pick({0, 1}) ? "0.5" : "0")};
  switch (pick({0, 1, 2})) {
    case 1: sets.emplace_back("model.dropout=0.1"); break;
    case 2: sets.insert(sets.end(), {"model.plugin=llama", "model.kv_heads=2"}); break;
  }
  if (pick({0, 0, 1}) == 1) sets.insert(sets.end(), {"optimizer.plugin=sgd", "optimizer.momentum=0.9"});
  return {seed, text.str(), sets};
}

std::vector<Drawn> all_drawn() {
  std::vector<Drawn> all;
  for (unsigned seed = 1; seed <= 36; ++seed) all.push_back(draw(seed));
  return all;
}

class DelayedLayout : public testing::TestWithParam<Drawn> {};

TEST_P(DelayedLayout, EqualsTheDelayedOneRank) {
  const Recipe recipe = tiny_recipe(with_all(small, GetParam().sets), GetParam().text);
  const LayoutVerdict verdict = verify_layout(recipe, plugins().places(), 5);
  EXPECT_TRUE(verdict.equal()) << GetParam().text << to_text(verdict);
}

INSTANTIATE_TEST_SUITE_P(Drawn, DelayedLayout, testing::ValuesIn(all_drawn()));

// ---------------------------------------------------------------- resume

struct Trained {
  std::vector<double> losses;
  Tensors tensors;
};

Trained train(const std::string& text, const std::string& out, const Sets& sets, int steps) {
  Trained trained;
  const Recipe recipe =
      tiny_recipe(with_all(with_all(small, {"run.out=" + out, "run.poison=false"}), sets), text);
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    const std::vector<double> losses = train_steps(trainer, steps);
    const std::filesystem::path saved = trainer.save();
    if (trainer.assembly().rank() != 0) return;
    trained = {losses, saved_in(saved)};
  });
  return trained;
}

TEST(Delayed, ResumesBitForBitAndInOtherLayouts) {
  const TempFolder folder;
  const auto out = [&](const std::string& name) { return folder / name; };
  const std::string three = pipeline(3);
  const Trained through = train(three, out("through"), {}, 7), first = train(three, out("first"), {}, 4);
  EXPECT_TRUE(first.tensors.contains("block.1.qkv.weight.before"));
  EXPECT_NE(first.tensors.at("block.1.qkv.weight.before"), first.tensors.at("block.1.qkv.weight"));
  const Trained rest = train(three, out("rest"), {"run.resume=" + out("first")}, 3);
  EXPECT_EQ(rest.losses, std::vector<double>(through.losses.begin() + 4, through.losses.end()));
  EXPECT_TRUE(rest.tensors == through.tensors);
  for (const auto& [name, text] :
       {std::pair<std::string, std::string>{"one", pipeline(1)},
        {"zero", pipeline(2, "dp = 2\n") + "[[strategy]]\nplugin = 'data'\n"
                                           "[[strategy]]\nplugin = 'zero'\nstage = 1\n"}}) {
    const Trained other = train(text, out(name), {"run.resume=" + out("first")}, 3);
    ASSERT_EQ(other.losses.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(other.losses[i], rest.losses[i], 1e-12) << name;
  }
}

TEST(Delayed, GoesOnFromNoOtherSchedule) {
  const TempFolder folder;
  const auto refused = [&](const std::string& from, const std::string& to, const char* why) {
    const std::string out = folder / ("from-" + std::to_string(from.size()));
    train(from, out, {}, 1);
    try {
      train(to, folder / "to", {"run.resume=" + out}, 1);
      ADD_FAILURE() << "it went on";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    }
  };
  refused("", pipeline(1), "was not trained with weights of one update before");
  refused(pipeline(1), "", "was trained with weights of one update before");
}

// ---------------------------------------------------------------- memory

std::int64_t bytes_of(const Plan& plan, Region region) { return plan.layout.memory.bytes[region]; }

// One version more, one accumulator more, and the activations of as many microbatches as a step that repeats
// itself has slots for.
TEST(Delayed, TakesTheMemoryOfTwoVersions) {
  for (const int ranks : {2, 3, 4})
    for (const int microbatches : {ranks, ranks + 1, 2 * ranks, 11}) {
      const Sets sets = with_all(
          small, {"run.poison=false", "model.layers=10", "batch.global=" + std::to_string(microbatches)});
      const std::string text = pipeline(ranks);
      std::string flushed = text;
      flushed.replace(flushed.find("2bw"), 3, "1f1b");
      for (int rank = 0; rank < ranks; ++rank) {
        const Assembly two(tiny_recipe(sets, text), plugins(), rank),
            one(tiny_recipe(sets, flushed), plugins(), rank);
        const Plan &a = two.plan(), &b = one.plan();
        EXPECT_EQ(bytes_of(a, Region::parameter), bytes_of(b, Region::parameter));
        EXPECT_EQ(bytes_of(a, Region::gradient), 2 * bytes_of(b, Region::gradient));
        EXPECT_EQ(bytes_of(a, Region::state), bytes_of(b, Region::state) + bytes_of(b, Region::parameter));
        const int alive = ranks - rank, rows = microbatches / alive;
        EXPECT_EQ(b.chunks.at(0).slots, alive);
        EXPECT_EQ(a.chunks.at(0).slots, (microbatches + rows - 1) / rows) << ranks << ' ' << microbatches;
        EXPECT_EQ(bytes_of(a, Region::slot) * alive, bytes_of(b, Region::slot) * a.chunks.at(0).slots);
      }
    }
}

}  // namespace
}  // namespace prun::test::delayed_test
