// Schedules that train with weights of updates before. 2bw: weights of one update before, so that one rank
// does as it is written, W(t+1) = W(t) - rate * grad f(W(t-1)). pipedream: weights as many updates old as
// stages come behind, a microbatch an update; one rank that is told the delays of its layers does W_s(t+1) =
// W_s(t) - rate * grad_s f(W_1(t-p+1), ..., W_p(t)). Every layout computes what one rank does.
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

const Sets tiny = {"model.hidden=16", "model.heads=2",          "model.ffn=32",        "model.seq=8",
                   "model.layers=4",  "model.tied=false",       "device.threads=1",    "device.pin=false",
                   "run.poison=true", "precision.compute=fp64", "precision.state=fp64"};
const Sets delayed = with_all(tiny, {"batch.micro=1", "batch.global=8"}),
           stashed = with_all(tiny, {"batch.micro=2", "batch.global=2", "optimizer.clip=0"});

std::string pipeline(const std::string& schedule, int ranks, const std::string& more_mesh = "",
                     const std::string& more = "") {
  return "[mesh]\npp = " + std::to_string(ranks) + "\n" + more_mesh +
         "[[strategy]]\nplugin = 'pipeline'\nschedule = '" + schedule + "'\n" + more;
}

// ---------------------------------------------------------------- one rank

using Numbers = std::map<std::string, std::vector<double>>;

// What a rank holds of parameters, of their gradients or of what they were before, name by name.
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

// Writes each parameter as `chosen` has it.
template <class Choice>
void put_parameters(Trainer& trainer, Choice&& chosen) {
  const Assembly& assembly = trainer.assembly();
  assembly.each_parameter([&](Id id, std::int32_t instance) {
    const Numbers& numbers = chosen(assembly.full_name(id, instance));
    trainer.memory().write(id, instance, 0,
                           std::as_bytes(std::span(numbers.at(assembly.full_name(id, instance)))));
  });
}

void expect_update(const Numbers& now, const Numbers& before, const Numbers& gradients, double rate,
                   int step) {
  for (const auto& [name, numbers] : now)
    for (std::size_t i = 0; i < numbers.size(); ++i)
      ASSERT_NEAR(numbers[i], before.at(name)[i] - rate * gradients.at(name)[i], 1e-15)
          << name << ' ' << step;
}

TEST(Delayed, OneRankTakesTheGradientWhereItWasOneUpdateBefore) {
  const Sets sets = with_all(delayed, {"optimizer.plugin=sgd", "optimizer.lr=0.05", "optimizer.clip=0"});
  const Assembly late(tiny_recipe(sets, pipeline("2bw", 1)), plugins()), usual(tiny_recipe(sets), plugins());
  Trainer trainer(late, plugins()), other(usual, plugins());
  Numbers before = numbers_of(trainer, Kept::parameter), now = before;
  EXPECT_EQ(numbers_of(trainer, Kept::before), now);
  for (int step = 0; step < 5; ++step) {
    put_parameters(other, [&](const std::string&) -> const Numbers& { return before; });  // W(t-1)
    const double loss = other.step().loss;
    EXPECT_EQ(trainer.step().loss, loss) << step;
    const Numbers gradients = numbers_of(trainer, Kept::gradient);
    EXPECT_EQ(gradients, numbers_of(other, Kept::gradient)) << step;
    before = now;  // W(t)
    now = numbers_of(trainer, Kept::parameter);
    EXPECT_EQ(numbers_of(trainer, Kept::before), before) << step;
    expect_update(now, before, gradients, 0.05, step);
  }
}

std::map<std::string, std::int32_t> delays_of(const Assembly& assembly) {
  std::map<std::string, std::int32_t> delays;
  assembly.each_parameter([&](Id id, std::int32_t instance) {
    delays[assembly.full_name(id, instance)] = assembly.plan().instances[instance].delay;
  });
  return delays;
}

TEST(Stashed, OneRankTakesEachLayersGradientWithItsOwnDelay) {
  const Sets sets = with_all(stashed, {"optimizer.plugin=sgd", "optimizer.lr=0.05"});
  const Assembly late(
      tiny_recipe(with_all(sets, {"optimizer.delays=[3, 3, 2, 1, 0, 0]"}), pipeline("pipedream", 1)),
      plugins()),
      usual(tiny_recipe(sets), plugins());
  const std::map<std::string, std::int32_t> delays = delays_of(late);
  Trainer trainer(late, plugins()), other(usual, plugins());
  std::vector<Numbers> versions = {numbers_of(trainer, Kept::parameter)};
  for (int step = 0; step < 7; ++step) {
    put_parameters(other, [&](const std::string& name) -> const Numbers& {
      return versions[static_cast<std::size_t>(std::max(0, step - delays.at(name)))];
    });
    const double loss = other.step().loss;
    EXPECT_EQ(trainer.step().loss, loss) << step;
    const Numbers gradients = numbers_of(trainer, Kept::gradient);
    EXPECT_EQ(gradients, numbers_of(other, Kept::gradient)) << step;
    const Numbers now = numbers_of(trainer, Kept::parameter);
    expect_update(now, versions.back(), gradients, 0.05, step);
    versions.push_back(now);
  }
}

// Spoils a step by this sample.
std::string spoilt_by(int sample) {
  return "[plugins]\nops = ['spoil']\n[[strategy]]\nplugin = 'spoil'\nsegment = 'block'\n"
         "tensor = 'qkv.bias'\nlayer = 2\nsample = " +
         std::to_string(sample) + "\n";
}

TEST(Delayed, AStepThatIsNotKeptLeavesWeightsAsTheyWere) {
  // Sample 13 is of step 2, and spoils it.
  for (const int ranks : {1, 2}) {
    const Recipe recipe =
        tiny_recipe(with_all(delayed, {"run.poison=false", "run.on_nonfinite=skip", "precision.compute=fp32",
                                       "precision.state=fp32", "optimizer.schedule.kind=cosine"}),
                    spoilt_by(13) + pipeline("2bw", ranks));
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

TEST(Stashed, AStepThatIsNotFiniteIsSaid) {
  // Sample 5 is of step 3.
  for (const int ranks : {1, 3}) {
    const Recipe recipe =
        tiny_recipe(with_all(stashed, {"run.poison=false", "precision.compute=fp32", "precision.state=fp32"}),
                    spoilt_by(5) + pipeline("pipedream", ranks));
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

// Draws stages, tensor, data, recomputation, dropout, and what else a schedule has.
class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}

  // Tied tables, ZeRO-1, clip, odd numbers of microbatches.
  Drawn delayed() {
    const int microbatches = pp_ + pick({0, 0, 1, 2, 5});
    add_mesh();
    if (dp_ > 1 && pick({0, 1, 1}) == 1) text_ << "[[strategy]]\nplugin = 'zero'\nstage = 1\n";
    add_recomputation();
    text_ << "[[strategy]]\nplugin = 'pipeline'\nschedule = '2bw'\n";
    Sets sets = {"batch.global=" + std::to_string(microbatches * dp_),
                 std::string("model.tied=") + (pick({0, 1}) ? "true" : "false"),
                 std::string("optimizer.clip=") + (pick({0, 1}) ? "0.5" : "0")};
    return drawn(std::move(sets));
  }

  // Layers shared out unevenly.
  Drawn stashed() {
    add_mesh();
    add_recomputation();
    text_ << "[[strategy]]\nplugin = 'pipeline'\nschedule = 'pipedream'\n";
    if (pp_ == 2 && pick({0, 1})) text_ << "layers = [4, 2]\n";
    if (pp_ == 3 && pick({0, 1})) text_ << "layers = [1, 3, 2]\n";
    return drawn({"batch.global=" + std::to_string(2 * dp_)});
  }

 private:
  int pick(std::initializer_list<int> list) {
    return list.begin()[std::uniform_int_distribution<std::size_t>(0, list.size() - 1)(random_)];
  }

  void add_mesh() {
    text_ << "[mesh]\n";
    if (pick({0, 1}) == 0)
      text_ << "dp = " << dp_ << "\npp = " << pp_ << "\ntp = " << tp_ << "\n";
    else
      text_ << "pp = " << pp_ << "\ntp = " << tp_ << "\ndp = " << dp_ << "\n";
    if (dp_ > 1) text_ << "[[strategy]]\nplugin = 'data'\n";
    if (tp_ > 1)
      text_ << "[[strategy]]\nplugin = 'tensor'\nsequence = " << (pick({0, 1}) ? "true\n" : "false\n");
  }

  void add_recomputation() {
    switch (pick({0, 0, 1, 2})) {
      case 1: text_ << "[[strategy]]\nplugin = 'recompute'\nmode = 'full'\n"; break;
      case 2: text_ << "[[strategy]]\nplugin = 'recompute'\nmode = 'selective'\nops = ['attention']\n"; break;
    }
  }

  Drawn drawn(Sets sets) {
    switch (pick({0, 1, 2})) {
      case 1: sets.emplace_back("model.dropout=0.1"); break;
      case 2: sets.insert(sets.end(), {"model.plugin=llama", "model.kv_heads=2"}); break;
    }
    if (pick({0, 0, 1}) == 1) sets.insert(sets.end(), {"optimizer.plugin=sgd", "optimizer.momentum=0.9"});
    return {text_.str(), sets};
  }

  std::mt19937 random_;
  std::ostringstream text_;
  const int pp_ = pick({2, 2, 3, 4}), dp_ = pick({1, 2}), tp_ = pp_ < 4 ? pick({1, 2}) : 1;
};

std::vector<Drawn> all_drawn(unsigned count, Drawn (Draw::*draw)()) {
  std::vector<Drawn> all;
  for (unsigned seed = 1; seed <= count; ++seed) all.push_back((Draw(seed).*draw)());
  return all;
}

void expect_equal(const Sets& sets, const Drawn& drawn, int steps) {
  const Recipe recipe = tiny_recipe(with_all(sets, drawn.sets), drawn.text);
  const LayoutVerdict verdict = verify_layout(recipe, plugins().places(), steps);
  EXPECT_TRUE(verdict.equal()) << drawn.text << to_text(verdict);
}

class DelayedLayout : public testing::TestWithParam<Drawn> {};
TEST_P(DelayedLayout, EqualsTheDelayedOneRank) { expect_equal(delayed, GetParam(), 5); }
INSTANTIATE_TEST_SUITE_P(Drawn, DelayedLayout, testing::ValuesIn(all_drawn(36, &Draw::delayed)));

class StashedLayout : public testing::TestWithParam<Drawn> {};
TEST_P(StashedLayout, EqualsOneRankWithTheDelaysOfItsStages) { expect_equal(stashed, GetParam(), 9); }
INSTANTIATE_TEST_SUITE_P(Drawn, StashedLayout, testing::ValuesIn(all_drawn(28, &Draw::stashed)));

// A verification that forgot the delays would find these two far apart.
TEST(Stashed, IsNotWhatOneRankDoesWithoutDelays) {
  std::vector<double> losses[2];
  for (const bool told : {false, true}) {
    const Assembly assembly(
        tiny_recipe(with_all(stashed, {told ? "optimizer.delays=[2, 2, 1, 1, 0, 0]" : "optimizer.delays=[]"}),
                    pipeline("pipedream", 1)),
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
  const Recipe recipe = tiny_recipe(with_all(sets, {"run.out=" + out, "run.poison=false"}), text);
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    const std::vector<double> losses = train_steps(trainer, steps);
    const std::filesystem::path saved = trainer.save();
    if (trainer.assembly().rank() != 0) return;
    trained = {losses, saved_in(saved)};
  });
  return trained;
}

void expect_near(const Trained& one, const Trained& other, const std::string& name) {
  ASSERT_EQ(one.losses.size(), other.losses.size()) << name;
  for (std::size_t i = 0; i < one.losses.size(); ++i)
    EXPECT_NEAR(one.losses[i], other.losses[i], 1e-12) << name;
}

TEST(Delayed, ResumesBitForBitAndInOtherLayouts) {
  const TempFolder folder;
  const auto out = [&](const std::string& name) { return folder / name; };
  const std::string three = pipeline("2bw", 3);
  const Trained through = train(three, out("through"), delayed, 7),
                first = train(three, out("first"), delayed, 4);
  EXPECT_TRUE(first.tensors.contains("block.1.qkv.weight.before"));
  EXPECT_NE(first.tensors.at("block.1.qkv.weight.before"), first.tensors.at("block.1.qkv.weight"));
  const Trained rest = train(three, out("rest"), with_all(delayed, {"run.resume=" + out("first")}), 3);
  EXPECT_EQ(rest.losses, std::vector<double>(through.losses.begin() + 4, through.losses.end()));
  EXPECT_TRUE(rest.tensors == through.tensors);
  for (const auto& [name, text] :
       {std::pair<std::string, std::string>{"one", pipeline("2bw", 1)},
        {"zero", pipeline("2bw", 2, "dp = 2\n") + "[[strategy]]\nplugin = 'data'\n"
                                                  "[[strategy]]\nplugin = 'zero'\nstage = 1\n"}}) {
    expect_near(train(text, out(name), with_all(delayed, {"run.resume=" + out("first")}), 3), rest, name);
  }
}

TEST(Stashed, ResumesBitForBitAndBesideOtherAxes) {
  const TempFolder folder;
  const auto out = [&](const std::string& name) { return folder / name; };
  const std::string three = pipeline("pipedream", 3, "", "layers = [2, 2, 2]\n");
  const Trained through = train(three, out("through"), stashed, 9),
                first = train(three, out("first"), stashed, 5);
  EXPECT_TRUE(first.tensors.contains("block.0.qkv.weight.before2"));
  EXPECT_TRUE(first.tensors.contains("block.1.qkv.weight.before"));
  EXPECT_FALSE(first.tensors.contains("block.1.qkv.weight.before2"));
  EXPECT_FALSE(first.tensors.contains("block.3.qkv.weight.before"));
  EXPECT_NE(first.tensors.at("block.0.qkv.weight.before2"), first.tensors.at("block.0.qkv.weight.before"));
  const Trained rest = train(three, out("rest"), with_all(stashed, {"run.resume=" + out("first")}), 4);
  EXPECT_EQ(rest.losses, std::vector<double>(through.losses.begin() + 5, through.losses.end()));
  EXPECT_TRUE(rest.tensors == through.tensors);
  for (const auto& [name, text, sets] :
       {std::tuple<std::string, std::string, Sets>{
            "one", pipeline("pipedream", 1), {"optimizer.delays=[2, 2, 1, 1, 0, 0]"}},
        {"tensor",
         pipeline("pipedream", 3, "tp = 2\n", "layers = [2, 2, 2]\n") + "[[strategy]]\nplugin = 'tensor'\n",
         {}}}) {
    const Sets resumed = with_all(stashed, {"run.resume=" + out("first")});
    expect_near(train(text, out(name), with_all(resumed, sets), 4), rest, name);
  }
}

// Training goes on from no other delays: that is refused, and why.
void expect_refusal(const Sets& sets, const std::string& from, const std::string& to, const char* why) {
  const TempFolder folder;
  train(from, folder / "from", sets, 1);
  try {
    train(to, folder / "to", with_all(sets, {"run.resume=" + (folder / "from")}), 1);
    ADD_FAILURE() << "it went on";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
  }
}

TEST(Delayed, GoesOnFromNoOtherSchedule) {
  const std::string one = pipeline("2bw", 1);
  expect_refusal(delayed, "", one, "it was not trained with weights of one update before");
  expect_refusal(delayed, one, "", "it was trained with weights of one update before");
}

TEST(Stashed, GoesOnFromNoOtherDelays) {
  const std::string two = pipeline("pipedream", 2, "", "layers = [3, 3]\n");
  expect_refusal(stashed, "", two, "it was not trained with weights of one update before");
  expect_refusal(stashed, two, "", "it was trained with weights of one update before");
  expect_refusal(stashed, pipeline("pipedream", 3, "", "layers = [2, 2, 2]\n"), two,
                 "' as of up to 2 updates ago, and the recipe needs 1");
}

// ---------------------------------------------------------------- memory

std::int64_t bytes_of(const Plan& plan, Region region) { return plan.layout.memory.bytes[region]; }

// One version more, one accumulator more, and the activations of as many microbatches as a step that repeats
// itself has slots for.
TEST(Delayed, TakesTheMemoryOfTwoVersions) {
  for (const int ranks : {2, 3, 4})
    for (const int microbatches : {ranks, ranks + 1, 2 * ranks, 11}) {
      const Sets sets = with_all(
          delayed, {"run.poison=false", "model.layers=10", "batch.global=" + std::to_string(microbatches)});
      for (int rank = 0; rank < ranks; ++rank) {
        const Assembly two(tiny_recipe(sets, pipeline("2bw", ranks)), plugins(), rank),
            one(tiny_recipe(sets, pipeline("1f1b", ranks)), plugins(), rank);
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

// Rank r of p has p - r versions of its weights, one of its gradients, and as many microbatches as 1f1b.
TEST(Stashed, TakesTheMemoryOfAsManyVersionsAsStagesFromItsOwnOn) {
  for (const int ranks : {2, 3, 4}) {
    const Sets sets = with_all(stashed, {"run.poison=false", "model.layers=10"});
    const Sets many = with_all(sets, {"batch.global=" + std::to_string(2 * ranks)});
    for (int rank = 0; rank < ranks; ++rank) {
      const Assembly late(tiny_recipe(sets, pipeline("pipedream", ranks)), plugins(), rank),
          one(tiny_recipe(many, pipeline("1f1b", ranks)), plugins(), rank);
      const Plan &a = late.plan(), &b = one.plan();
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
}  // namespace prun::test::delayed_test
