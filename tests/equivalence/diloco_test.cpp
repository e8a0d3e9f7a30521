// The example DiLoCo: parameters that vary (ProgramApi::vary), ops of one step in so many (periodic) and what
// stands for parameters (evaluate_with). What two ranks compute follows from steps that one rank makes of
// each rank's samples, and from the outer update's formula in the paper; prun verify compares layouts with as
// many ranks of the axis (tests/cases/layout/diloco_*).
#include <gtest/gtest.h>

#include <cmath>

#include "estimate/forecast.hpp"
#include "execute/plan_memory.hpp"
#include "support/coded_runs.hpp"

namespace prun::test::diloco_test {
namespace {

constexpr int ranks = 2;
constexpr double outer_lr = 0.7, momentum = 0.9;

std::string diloco(int every) {
  return "[mesh]\ndp = 2\n[[strategy]]\nplugin = 'diloco'\nevery = " + std::to_string(every) + "\n";
}

Recipe recipe_of(const std::string& text, const std::string& global, std::vector<std::string> more) {
  more.insert(more.end(), {"precision.compute=fp64", "precision.state=fp64", "model.hidden=16",
                           "model.heads=2", "model.seq=8", "batch.micro=1", "batch.global=" + global,
                           "device.threads=1", "device.pin=false"});
  return tiny_recipe(more, text);
}

using Tensors = std::map<std::string, std::vector<double>>;

template <class Body>
void each(Trainer& trainer, Body&& body) {
  const Assembly& assembly = trainer.assembly();
  assembly.each_parameter([&](Id id, std::int32_t instance) {
    each_held(assembly.program(), assembly.rank(), id, instance, Kept::parameter,
              [&](const HeldRun& run) { body(assembly.full_name(id, instance), run); });
  });
}

std::span<std::byte> bytes_of(std::vector<double>& numbers, const HeldRun& run) {
  return std::as_writable_bytes(
      std::span(numbers).subspan(static_cast<std::size_t>(run.whole), static_cast<std::size_t>(run.count)));
}

Tensors read(Trainer& trainer) {
  Tensors tensors;
  each(trainer, [&](const std::string& name, const HeldRun& run) {
    std::vector<double>& numbers = tensors[name];
    numbers.resize(std::max(numbers.size(), static_cast<std::size_t>(run.whole + run.count)));
    trainer.memory().read(run.value, run.instance, run.offset, bytes_of(numbers, run));
  });
  return tensors;
}

void write(Trainer& trainer, Tensors& tensors) {
  each(trainer, [&](const std::string& name, const HeldRun& run) {
    trainer.memory().write(run.value, run.instance, run.offset, bytes_of(tensors.at(name), run));
  });
}

// Holds what two ranks have behind some steps, and the losses of these.
struct Trained {
  std::vector<Tensors> of = std::vector<Tensors>(ranks);
  std::vector<double> losses;
};

// Emulates the outer update, with momentum as the paper and PyTorch have it.
void come_together(std::vector<Tensors>& of, Tensors& outer, Tensors& velocity) {
  for (auto& [name, start] : outer)
    for (std::size_t i = 0; i < start.size(); ++i) {
      double mean = 0;
      for (const Tensors& own : of) mean += own.at(name)[i] / ranks;
      double& v = velocity[name].at(i);
      const double moved = start[i] - mean;
      v = momentum * v + moved;
      start[i] -= outer_lr * (moved + momentum * v);
      for (Tensors& own : of) own.at(name)[i] = start[i];
    }
}

// A step of one rank has one sample: that of the ranks in turn. Plain SGD keeps nothing from step to step.
Trained emulate(const Recipe& one, int steps, int every) {
  Trained all;
  run_local_ranks(one, plugins().places(), [&](Trainer& trainer) {
    Tensors outer = read(trainer), velocity = outer;
    for (auto& [name, v] : velocity) std::fill(v.begin(), v.end(), 0.0);
    all.of = {outer, outer};
    for (int step = 1; step <= steps; ++step) {
      double loss = 0;
      for (Tensors& own : all.of) {
        write(trainer, own);
        loss += trainer.step().loss / ranks;
        own = read(trainer);
      }
      all.losses.push_back(loss);
      if (step % every == 0) come_together(all.of, outer, velocity);
    }
  });
  return all;
}

Trained train(const Recipe& recipe, int steps) {
  Trained all;
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    const std::vector<double> losses = train_steps(trainer, steps);
    all.of[static_cast<std::size_t>(trainer.assembly().rank())] = read(trainer);
    if (trainer.assembly().rank() == 0) all.losses = losses;
  });
  return all;
}

void expect_equal(const Trained& a, const Trained& b) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (std::size_t s = 0; s < a.losses.size(); ++s) EXPECT_NEAR(a.losses[s], b.losses[s], 1e-12) << s;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    for (const auto& [name, numbers] : a.of[rank])
      for (std::size_t i = 0; i < numbers.size(); ++i)
        ASSERT_NEAR(numbers[i], b.of[rank].at(name)[i], 1e-12) << "rank " << rank << ", " << name << " " << i;
}

class EachPeriod : public testing::TestWithParam<int> {};

// Each rank clips by its own norm, which differs from rank to rank.
TEST_P(EachPeriod, FollowsFromRanksThatTrainApart) {
  const std::vector<std::string> sgd = {"optimizer.plugin=sgd", "optimizer.lr=0.05", "optimizer.clip=0.5"};
  const Recipe two = recipe_of(diloco(GetParam()), "2", sgd), one = recipe_of("", "1", sgd);
  constexpr int steps = 15;
  expect_equal(train(two, steps), emulate(one, steps, GetParam()));
}

std::vector<std::string> adamw(std::vector<std::string> more) {
  more.insert(more.end(), {"optimizer.plugin=adamw", "optimizer.lr=0.01", "optimizer.clip=1"});
  return more;
}

TEST_P(EachPeriod, GoesOnWithTheSameBitsFromEachOfItsSteps) {
  constexpr int steps = 9;
  const Numbers through = trained(recipe_of(diloco(GetParam()), "4", adamw({})), steps);
  for (int first = 1; first < steps; ++first) {
    const std::string name = detail::concat("diloco-", GetParam(), "-", first),
                      out = (temporary_folder() / name).string();
    trained(recipe_of(diloco(GetParam()), "4", adamw({"run.out=" + out})), first, true);
    const Recipe on = recipe_of(diloco(GetParam()), "4", adamw({"run.out=" + out, "run.resume=" + out}));
    Numbers rest = through;
    for (std::vector<double>& numbers : rest) numbers.erase(numbers.begin(), numbers.begin() + first);
    EXPECT_EQ(trained(on, steps - first), rest) << "from step " << first;
  }
}

// Between two meetings ranks exchange the numbers of a step alone: what the plan says, and no parameter.
TEST_P(EachPeriod, SendsParametersOnceAPeriod) {
  const Recipe recipe = recipe_of(diloco(GetParam()), "2", adamw({}));
  constexpr int steps = 14;
  const int meetings = steps / GetParam();
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    PluginHost host(plugins().places());
    const Assembly& assembly = trainer.assembly();
    std::uint64_t full = 0, sent = 0;
    for (const std::uint64_t bytes : sent_of(assembly, host)) full += bytes;
    const Forecast said = forecast(assembly, host, {});
    ASSERT_TRUE(said.period);
    for (int step = 0; step < steps; ++step) trainer.step();
    for (std::size_t q = 0; q < assembly.plan().queues.size(); ++q)
      if (assembly.plan().queues[q].communicates()) sent += trainer.communicators()->counters(q).bytes_sent;
    EXPECT_EQ(sent, static_cast<std::uint64_t>(meetings) * full +
                        static_cast<std::uint64_t>(steps - meetings) * said.period->sent);
    const auto parameters = static_cast<std::uint64_t>(assembly.parameters()) * sizeof(double);
    EXPECT_GE(full, parameters);  // of two ranks each sends all of it
    if (GetParam() > 1) {
      EXPECT_LT(said.period->sent * 20, parameters);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(DiLoCo, EachPeriod, testing::Values(1, 4, 7),
                         [](const auto& each) { return std::to_string(each.param); });

// With one inner step, plain SGD and an outer step that takes the mean, ranks do as data-parallel ones.
TEST(DiLoCo, WithAPeriodOfOneAndPlainStepsIsDataParallel) {
  const std::vector<std::string> sgd = {"optimizer.plugin=sgd", "optimizer.lr=0.05", "optimizer.clip=0"};
  const Recipe apart = recipe_of(diloco(1) + "lr = 1\nmomentum = 0\n", "4", sgd),
               together = recipe_of(data_parallel(2), "4", sgd);
  expect_equal(train(apart, 12), train(together, 12));
}

// A checkpoint has the outer parameters under the parameters' names, and that is what a run evaluates, in the
// middle of a period too.
TEST(DiLoCo, EvaluatesWhatItsCheckpointHas) {
  const std::string out = (temporary_folder() / "diloco-eval").string();
  const auto recipe = [](const std::string& text, const std::string& set) {
    return recipe_of(text, "2", adamw({"eval.every=1", "eval.batches=2", "data.validation=0.1", set}))
        .with("precision.compute", "fp32")
        .with("precision.state", "fp32");
  };
  std::vector<double> losses;
  run_local_ranks(recipe(diloco(4), "run.out=" + out), plugins().places(), [&](Trainer& trainer) {
    const auto evaluate = [&] {
      const double loss = trainer.evaluate().whole.loss;
      if (trainer.assembly().rank() == 0) losses.push_back(loss);
    };
    evaluate();
    train_steps(trainer, 4);
    evaluate();
    const std::vector<double> met = parameters_of(trainer);
    train_steps(trainer, 2);
    const std::vector<double> apart = parameters_of(trainer);
    evaluate();
    EXPECT_NE(apart, met);
    EXPECT_EQ(parameters_of(trainer), apart);
    trainer.save();
  });
  ASSERT_EQ(losses.size(), 3u);
  EXPECT_NE(losses[0], losses[1]);
  EXPECT_EQ(losses[1], losses[2]);
  run_local_ranks(recipe(data_parallel(2), "model.init=" + out), plugins().places(),
                  [&](Trainer& trainer) { EXPECT_EQ(trainer.evaluate().whole.loss, losses[2]); });
}

// Where parameters are rounded from masters, an evaluation puts back what updates have rounded.
TEST(DiLoCo, EvaluationsChangeNoBitOfARunInBf16) {
  const auto run = [](bool evaluates) {
    const Recipe recipe =
        recipe_of(diloco(2), "2", adamw({"eval.every=1", "eval.batches=1", "data.validation=0.1"}))
            .with("precision.compute", "bf16")
            .with("precision.state", "fp32");
    Numbers all(ranks);
    run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
      EXPECT_TRUE(trainer.evaluation_moves_weights());
      std::vector<double>& numbers = all[static_cast<std::size_t>(trainer.assembly().rank())];
      for (int step = 0; step < 6; ++step) {
        numbers.push_back(trainer.step().loss);
        if (evaluates) trainer.evaluate();
      }
      for (const double parameter : parameters_of(trainer)) numbers.push_back(parameter);
    });
    return all;
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(DiLoCo, IsNotResumedByOtherNumbersOfRanks) {
  const std::string out = (temporary_folder() / "diloco-resize").string();
  trained(recipe_of(diloco(4), "4", adamw({"run.out=" + out})), 2, true);
  for (const char* others : {"1", "4"}) try {
      trained(recipe_of(diloco(4), "4", adamw({"run.resume=" + out})).with("mesh.dp", others), 1);
      FAIL() << "parameters of 2 ranks became those of " << others;
    } catch (const Error& error) {
      EXPECT_EQ(exit_code(error.code()), 2);
      EXPECT_NE(std::string(error.what()).find(".trained'"), std::string::npos) << error.what();
    }
}

}  // namespace
}  // namespace prun::test::diloco_test
