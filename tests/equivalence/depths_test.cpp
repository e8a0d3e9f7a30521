// The example mixture-of-depths: layers that read other values than the model gave them
// (ProgramApi::replace_value). prun verify compares layouts (tests/cases/layout/depths_*).
#include <gtest/gtest.h>

#include <cmath>

#include "execute/plan_memory.hpp"
#include "program/flops.hpp"
#include "support/coded_runs.hpp"

namespace prun::test::depths_test {
namespace {

Recipe recipe_of(const std::string& strategy, std::vector<std::string> more = {}) {
  more.insert(more.end(),
              {"precision.compute=fp64", "precision.state=fp64", "model.hidden=16", "model.heads=2",
               "model.layers=2", "model.seq=8", "batch.micro=2", "batch.global=4", "device.threads=1",
               "device.pin=false", "optimizer.plugin=sgd", "optimizer.lr=1", "optimizer.clip=0"});
  return tiny_recipe(more, strategy);
}

std::string depths(const std::string& options) {
  return "[plugins]\nops = ['chosen-tokens']\n[[strategy]]\nplugin = 'mixture-of-depths'\n" + options + "\n";
}

// Names a number of a parameter: of the last layer, its first ones.
struct Place {
  std::string name;
  std::int64_t at = 0;
};

template <class Body>
void at(Trainer& trainer, const Place& place, Body&& body) {
  const Assembly& assembly = trainer.assembly();
  int found = 0;
  assembly.each_parameter([&](Id id, std::int32_t instance) {
    each_held(assembly.program(), assembly.rank(), id, instance, Kept::parameter, [&](const HeldRun& run) {
      if (assembly.full_name(id, instance) != place.name) return;
      ++found;
      body(run.value, run.instance, run.offset + place.at * static_cast<std::int64_t>(sizeof(double)));
    });
  });
  ASSERT_EQ(found, 1) << place.name;
}

double number_at(Trainer& trainer, const Place& place) {
  double number = 0;
  at(trainer, place, [&](Id value, std::int32_t instance, std::int64_t offset) {
    trainer.memory().read(value, instance, offset, std::as_writable_bytes(std::span(&number, 1)));
  });
  return number;
}

// The loss of the first step from the parameters that a recipe starts with, one of them moved.
double loss_with(const Recipe& recipe, const Place& place, double moved) {
  double loss = 0;
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    double number = number_at(trainer, place) + moved;
    at(trainer, place, [&](Id value, std::int32_t instance, std::int64_t offset) {
      trainer.memory().write(value, instance, offset, std::as_writable_bytes(std::span(&number, 1)));
    });
    loss = trainer.step().loss;
  });
  return loss;
}

// SGD moves a parameter by its gradient.
double gradient_at(const Recipe& recipe, const Place& place) {
  double gradient = 0;
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    gradient = number_at(trainer, place);
    trainer.step();
    gradient -= number_at(trainer, place);
  });
  return gradient;
}

TEST(Depths, OfAllTokensWithRoutersAtZeroIsThePlainModel) {
  const Place weight{"block.0.qkv.weight", 3};
  const Recipe plain = recipe_of(""), all = recipe_of(depths("capacity = 1\ninit_std = 0"));
  EXPECT_NEAR(loss_with(all, weight, 0), loss_with(plain, weight, 0), 1e-12);
  EXPECT_NEAR(gradient_at(all, weight), gradient_at(plain, weight), 1e-12);
}

TEST(Depths, ASmallerCapacityIsAnotherModel) {
  const Place weight{"block.0.qkv.weight", 3};
  const Recipe all = recipe_of(depths("capacity = 1")), half = recipe_of(depths("capacity = 0.5"));
  EXPECT_GT(std::fabs(loss_with(all, weight, 0) - loss_with(half, weight, 0)), 1e-6);
}

// Which tokens are chosen does not change where scores move so little.
TEST(Depths, GradientsAreThoseOfTheLoss) {
  const Recipe recipe = recipe_of(depths("capacity = 0.5\ninit_std = 1"));
  for (const Place& place :
       {Place{"block.0.router.weight", 0}, Place{"block.1.router.weight", 7}, Place{"block.0.qkv.weight", 3},
        Place{"block.1.norm1.gain", 2}, Place{"embedding.position", 40}}) {
    const double step = 1e-5;
    const double slope = (loss_with(recipe, place, step) - loss_with(recipe, place, -step)) / (2 * step);
    EXPECT_NEAR(gradient_at(recipe, place), slope, 1e-8 + 1e-5 * std::fabs(slope)) << place.name;
    EXPECT_NE(slope, 0) << place.name;
  }
}

TEST(Depths, ComputeLess) {
  const auto flops = [](const std::string& options) {
    const Assembly assembly(recipe_of(depths(options)), plugins());
    return model_flops(assembly.unlowered());
  };
  EXPECT_LT(flops("capacity = 0.25"), flops("capacity = 0.5"));
}

}  // namespace
}  // namespace prun::test::depths_test
