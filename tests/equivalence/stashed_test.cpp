// Schedules whose stages train with weights as many updates old as stages come behind them, a microbatch an
// update: one rank that is told the delays of its layers does as it is written, W_s(t+1) = W_s(t) - rate *
// grad_s f(W_1(t-p+1), ..., W_p(t)), and every layout computes what one rank does.
#include <gtest/gtest.h>

#include <random>

#include "inspect/verify.hpp"
#include "support/assembly_fixture.hpp"
#include "support/saved.hpp"
#include "support/temp_folder.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::stashed_test {
namespace {

using Sets = std::vector<std::string>;

Sets with_all(Sets sets, const Sets& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

const Sets small = {"model.hidden=16", "model.heads=2",    "model.ffn=32",           "model.seq=8",
                    "model.layers=4",  "model.tied=false", "device.threads=1",       "device.pin=false",
                    "run.poison=true", "batch.micro=2",    "precision.compute=fp64", "precision.state=fp64",
                    "batch.global=2",  "optimizer.clip=0"};

std::string pipeline(int ranks, const std::string& more_mesh = "", const std::string& more = "") {
  return "[mesh]\npp = " + std::to_string(ranks) + "\n" + more_mesh +
         "[[strategy]]\nplugin = 'pipeline'\nschedule = 'pipedream'\n" + more;
}

// ---------------------------------------------------------------- one rank

using Numbers = std::map<std::string, std::vector<double>>;

Numbers numbers_of(Trainer& trainer, Kept kept) {
  Numbers all;
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

// Each as it was so many updates before as its instance is behind; `versions`: the latest last.
void put_parameters(Trainer& trainer, const Assembly& delayed, const std::vector<Numbers>& versions) {
  std::map<std::string, std::int32_t> delays;
  delayed.each_parameter([&](Id id, std::int32_t instance) {
    delays[delayed.full_name(id, instance)] = delayed.plan().instances[instance].delay;
  });
  const Assembly& assembly = trainer.assembly();
  assembly.each_parameter([&](Id id, std::int32_t instance) {
    const std::string name = assembly.full_name(id, instance);
    const std::int64_t now = static_cast<std::int64_t>(versions.size()) - 1,
                       at = std::max<std::int64_t>(0, now - delays.at(name));
    trainer.memory().write(id, instance, 0,
                           std::as_bytes(std::span(versions[static_cast<std::size_t>(at)].at(name))));
  });
}

TEST(Stashed, OneRankTakesEachLayersGradientWithItsOwnDelay) {
  constexpr double rate = 0.05;
  const Sets sets = with_all(small, {"optimizer.plugin=sgd", "optimizer.lr=0.05"});
  const Assembly delayed(tiny_recipe(with_all(sets, {"optimizer.delays=[3, 3, 2, 1, 0, 0]"}), pipeline(1)),
                         plugins()),
      usual(tiny_recipe(sets), plugins());
  Trainer trainer(delayed, plugins()), other(usual, plugins());
  std::vector<Numbers> versions = {numbers_of(trainer, Kept::parameter)};
  for (int step = 0; step < 7; ++step) {
    put_parameters(other, delayed, versions);
    const double loss = other.step().loss;
    EXPECT_EQ(trainer.step().loss, loss) << step;
    const Numbers gradients = numbers_of(trainer, Kept::gradient);
    EXPECT_EQ(gradients, numbers_of(other, Kept::gradient)) << step;
    const Numbers now = numbers_of(trainer, Kept::parameter);
    for (const auto& [name, numbers] : now)
      for (std::size_t i = 0; i < numbers.size(); ++i)
        ASSERT_NEAR(numbers[i], versions.back().at(name)[i] - rate * gradients.at(name)[i], 1e-15)
            << name << ' ' << step;
    versions.push_back(now);
  }
}

// Sample 5 is of step 3, and spoils it.
TEST(Stashed, AStepThatIsNotFiniteIsSaid) {
  const std::string spoils =
      "[plugins]\nops = ['spoil']\n[[strategy]]\nplugin = 'spoil'\nsegment = 'block'\n"
      "tensor = 'qkv.bias'\nlayer = 2\nsample = 5\n";
  for (const int ranks : {1, 3}) {
    const Recipe recipe =
        tiny_recipe(with_all(small, {"run.poison=false", "precision.compute=fp32", "precision.state=fp32"}),
                    spoils + pipeline(ranks));
    run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
      std::vector<bool> kept;
      trainer.run(3, [&](const StepResult& result) { kept.push_back(result.kept); });
      EXPECT_EQ(kept, (std::vector<bool>{true, true, false}));
    });
  }
}

// ---------------------------------------------------------------- layouts

struct Drawn {
  std::string text;
  Sets sets;
};

void PrintTo(const Drawn& drawn, std::ostream* out) { *out << drawn.text; }

// Stages, tensor, data, recomputation, dropout, layers shared out unevenly.
Drawn draw(unsigned seed) {
  std::mt19937 random(seed);
  const auto pick = [&](std::initializer_list<int> list) {
    return list.begin()[std::uniform_int_distribution<std::size_t>(0, list.size() - 1)(random)];
  };
  const int pp = pick({2, 2, 3, 4}), dp = pick({1, 2}), tp = pp < 4 ? pick({1, 2}) : 1;
  std::ostringstream text;
  text << "[mesh]\n";
  if (pick({0, 1}) == 0)
    text << "dp = " << dp << "\npp = " << pp << "\ntp = " << tp << "\n";
  else
    text << "pp = " << pp << "\ntp = " << tp << "\ndp = " << dp << "\n";
  if (dp > 1) text << "[[strategy]]\nplugin = 'data'\n";
  if (tp > 1) text << "[[strategy]]\nplugin = 'tensor'\nsequence = " << (pick({0, 1}) ? "true\n" : "false\n");
  switch (pick({0, 0, 1, 2})) {
    case 1: text << "[[strategy]]\nplugin = 'recompute'\nmode = 'full'\n"; break;
    case 2: text << "[[strategy]]\nplugin = 'recompute'\nmode = 'selective'\nops = ['attention']\n"; break;
  }
  text << "[[strategy]]\nplugin = 'pipeline'\nschedule = 'pipedream'\n";
  if (pp == 2 && pick({0, 1})) text << "layers = [4, 2]\n";
  if (pp == 3 && pick({0, 1})) text << "layers = [1, 3, 2]\n";
  Sets sets = {"batch.global=" + std::to_string(2 * dp)};
  switch (pick({0, 1, 2})) {
    case 1: sets.emplace_back("model.dropout=0.1"); break;
    case 2: sets.insert(sets.end(), {"model.plugin=llama", "model.kv_heads=2"}); break;
  }
  if (pick({0, 0, 1}) == 1) sets.insert(sets.end(), {"optimizer.plugin=sgd", "optimizer.momentum=0.9"});
  return {text.str(), sets};
}

std::vector<Drawn> all_drawn() {
  std::vector<Drawn> all;
  for (unsigned seed = 1; seed <= 28; ++seed) all.push_back(draw(seed));
  return all;
}

class StashedLayout : public testing::TestWithParam<Drawn> {};

TEST_P(StashedLayout, EqualsOneRankWithTheDelaysOfItsStages) {
  const Recipe recipe = tiny_recipe(with_all(small, GetParam().sets), GetParam().text);
  const LayoutVerdict verdict = verify_layout(recipe, plugins().places(), 9);
  EXPECT_TRUE(verdict.equal()) << GetParam().text << to_text(verdict);
}

INSTANTIATE_TEST_SUITE_P(Drawn, StashedLayout, testing::ValuesIn(all_drawn()));

// A verification that forgot the delays would find these two far apart.
TEST(Stashed, IsNotWhatOneRankDoesWithoutDelays) {
  std::vector<double> losses[2];
  for (const bool told : {false, true}) {
    const Assembly assembly(
        tiny_recipe(with_all(small, {told ? "optimizer.delays=[2, 2, 1, 1, 0, 0]" : "optimizer.delays=[]"}),
                    pipeline(1)),
        plugins());
    Trainer trainer(assembly, plugins());
    losses[told] = train_steps(trainer, 4);
  }
  EXPECT_EQ(losses[0][0], losses[1][0]);
  EXPECT_GT(std::abs(losses[0][3] - losses[1][3]), 1e-6);
}

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

TEST(Stashed, ResumesBitForBitAndBesideOtherAxes) {
  const TempFolder folder;
  const auto out = [&](const std::string& name) { return folder / name; };
  const std::string three = pipeline(3, "", "layers = [2, 2, 2]\n");
  const Trained through = train(three, out("through"), {}, 9), first = train(three, out("first"), {}, 5);
  EXPECT_TRUE(first.tensors.contains("block.0.qkv.weight.before2"));
  EXPECT_TRUE(first.tensors.contains("block.1.qkv.weight.before"));
  EXPECT_FALSE(first.tensors.contains("block.1.qkv.weight.before2"));
  EXPECT_FALSE(first.tensors.contains("block.3.qkv.weight.before"));
  EXPECT_NE(first.tensors.at("block.0.qkv.weight.before2"), first.tensors.at("block.0.qkv.weight.before"));
  const Trained rest = train(three, out("rest"), {"run.resume=" + out("first")}, 4);
  EXPECT_EQ(rest.losses, std::vector<double>(through.losses.begin() + 5, through.losses.end()));
  EXPECT_TRUE(rest.tensors == through.tensors);
  for (const auto& [name, text, sets] :
       {std::tuple<std::string, std::string, Sets>{
            "one", pipeline(1), {"optimizer.delays=[2, 2, 1, 1, 0, 0]"}},
        {"tensor",
         pipeline(3, "tp = 2\n", "layers = [2, 2, 2]\n") + "[[strategy]]\nplugin = 'tensor'\n",
         {}}}) {
    const Trained other = train(text, out(name), with_all(sets, {"run.resume=" + out("first")}), 4);
    ASSERT_EQ(other.losses.size(), 4u);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(other.losses[i], rest.losses[i], 1e-12) << name;
  }
}

TEST(Stashed, GoesOnFromNoOtherDelays) {
  const TempFolder folder;
  const std::string two = pipeline(2, "", "layers = [3, 3]\n");
  int number = 0;
  const auto refused = [&](const std::string& from, const std::string& to, const char* why) {
    const std::string out = folder / ("from-" + std::to_string(++number));
    train(from, out, {}, 1);
    try {
      train(to, folder / "to", {"run.resume=" + out}, 1);
      ADD_FAILURE() << "it went on";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    }
  };
  refused("", two, "was not trained with weights of one update before");
  refused(two, "", "was trained with weights of one update before");
  refused(pipeline(3, "", "layers = [2, 2, 2]\n"), two,
          "' as it was up to 2 updates before, and the recipe trains it with weights 1 update old");
}

// ---------------------------------------------------------------- memory

std::int64_t bytes_of(const Plan& plan, Region region) { return plan.layout.memory.bytes[region]; }

// Rank r of p has p - r versions of its weights, one of its gradients, and as many microbatches as 1f1b.
TEST(Stashed, TakesTheMemoryOfAsManyVersionsAsStagesFromItsOwnOn) {
  for (const int ranks : {2, 3, 4}) {
    const Sets sets = with_all(small, {"run.poison=false", "model.layers=10"});
    const std::string text = pipeline(ranks);
    std::string flushed = text;
    flushed.replace(flushed.find("pipedream"), 9, "1f1b");
    const Sets many = with_all(sets, {"batch.global=" + std::to_string(2 * ranks)});
    for (int rank = 0; rank < ranks; ++rank) {
      const Assembly stashed(tiny_recipe(sets, text), plugins(), rank),
          one(tiny_recipe(many, flushed), plugins(), rank);
      const Plan &a = stashed.plan(), &b = one.plan();
      SCOPED_TRACE(std::to_string(rank) + " of " + std::to_string(ranks));
      const int delay = ranks - 1 - rank;
      EXPECT_EQ(bytes_of(a, Region::parameter), bytes_of(b, Region::parameter));
      EXPECT_EQ(bytes_of(a, Region::gradient), bytes_of(b, Region::gradient));
      EXPECT_EQ(bytes_of(a, Region::state),
                bytes_of(b, Region::state) + delay * bytes_of(b, Region::parameter));
      EXPECT_EQ(a.slot_copies, delay + 1);
      EXPECT_EQ(b.chunks.at(0).slots, delay + 1);
      EXPECT_EQ(bytes_of(a, Region::slot), bytes_of(b, Region::slot));
    }
  }
}

}  // namespace
}  // namespace prun::test::stashed_test
