// Emulates the example error-feedback: what two ranks compute follows from gradients that one rank computes
// of each rank's samples, by the three lines of its description and plain SGD. prun verify compares layouts
// with as many ranks of the axis; this shows that the axis itself is right.
#include <gtest/gtest.h>

#include <cmath>

#include "execute/plan_memory.hpp"
#include "support/assembly_fixture.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::error_feedback_test {
namespace {

constexpr int steps = 30, ranks = 2;
constexpr double lr = 0.05, grid = 0.0078125;

Recipe recipe_of(int dp, const std::string& strategies) {
  const std::string size = std::to_string(dp);
  return tiny_recipe({"precision.compute=fp64", "precision.state=fp64", "model.hidden=16", "model.heads=2",
                      "model.seq=8", "batch.micro=1", "batch.global=" + size, "device.threads=1",
                      "device.pin=false", "optimizer.plugin=sgd", "optimizer.lr=0.05", "optimizer.clip=0"},
                     "[mesh]\ndp = " + size + "\n[[strategy]]\nplugin = 'data'\n" + strategies);
}

using Tensors = std::map<std::string, std::vector<double>>;

// Calls body(name, run) for what a rank holds of each parameter, or of its gradient.
template <class Body>
void each(Trainer& trainer, Kept kept, Body&& body) {
  const Assembly& assembly = trainer.assembly();
  assembly.each_parameter([&](Id id, std::int32_t instance) {
    each_held(assembly.program(), assembly.rank(), id, instance, kept,
              [&](const HeldRun& run) { body(assembly.full_name(id, instance), run); });
  });
}

Tensors read(Trainer& trainer, Kept kept) {
  Tensors tensors;
  each(trainer, kept, [&](const std::string& name, const HeldRun& run) {
    std::vector<double>& numbers = tensors[name];
    numbers.resize(std::max(numbers.size(), static_cast<std::size_t>(run.whole + run.count)));
    trainer.memory().read(run.value, run.instance, run.offset,
                          std::as_writable_bytes(std::span(numbers).subspan(
                              static_cast<std::size_t>(run.whole), static_cast<std::size_t>(run.count))));
  });
  return tensors;
}

void write(Trainer& trainer, const Tensors& tensors) {
  each(trainer, Kept::parameter, [&](const std::string& name, const HeldRun& run) {
    trainer.memory().write(run.value, run.instance, run.offset,
                           std::as_bytes(std::span(tensors.at(name))
                                             .subspan(static_cast<std::size_t>(run.whole),
                                                      static_cast<std::size_t>(run.count))));
  });
}

// A step of one rank has one sample: that of the ranks in turn.
void emulate(Trainer& trainer, Tensors& weights) {
  weights = read(trainer, Kept::parameter);
  std::vector<Tensors> rests(ranks);
  for (int step = 0; step < steps; ++step) {
    Tensors sums;
    for (int rank = 0; rank < ranks; ++rank) {
      write(trainer, weights);
      trainer.step();
      for (const auto& [name, gradient] : read(trainer, Kept::gradient)) {
        std::vector<double>&rest = rests[static_cast<std::size_t>(rank)][name], &sum = sums[name];
        rest.resize(gradient.size()), sum.resize(gradient.size());
        for (std::size_t i = 0; i < gradient.size(); ++i) {
          const double whole = gradient[i] / ranks + rest[i], rounded = std::nearbyint(whole / grid) * grid;
          rest[i] = whole - rounded, sum[i] += rounded;
        }
      }
    }
    for (auto& [name, weight] : weights)
      for (std::size_t i = 0; i < weight.size(); ++i) weight[i] -= lr * sums.at(name)[i];
  }
}

TEST(ErrorFeedback, OfTwoRanksFollowsFromGradientsThatOneRankComputes) {
  Tensors emulated, trained;
  run_local_ranks(recipe_of(1, ""), plugins().places(), [&](Trainer& one) { emulate(one, emulated); });
  run_local_ranks(recipe_of(ranks, "[plugins]\nops = ['grid']\n[[strategy]]\nplugin = 'error-feedback'\n"),
                  plugins().places(), [&](Trainer& trainer) {
                    for (int step = 0; step < steps; ++step) trainer.step();
                    if (trainer.assembly().rank() == 0) trained = read(trainer, Kept::parameter);
                  });
  ASSERT_EQ(trained.size(), emulated.size());
  for (const auto& [name, weight] : trained)
    for (std::size_t i = 0; i < weight.size(); ++i)
      EXPECT_NEAR(weight[i], emulated.at(name)[i], 1e-12) << name << " " << i;
}

}  // namespace
}  // namespace prun::test::error_feedback_test
