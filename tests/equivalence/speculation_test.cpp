// Updates that begin before the norm of all gradients is known: the bits are those of updates that wait for
// it, in steps within the limit, beyond it, and not kept.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "execute/probe.hpp"
#include "support/assembly_fixture.hpp"
#include "support/built_plugins.hpp"
#include "support/layouts.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::speculation_test {
namespace {

constexpr int steps = 8;
// In steps of these recipes norms are on either side of it.
constexpr double limit = 0.95;

std::vector<Layout> speculating_layouts() {
  const std::string data = "[mesh]\ndp = 2\n[[strategy]]\nplugin = 'data'\n",
                    zero3 = data + "[[strategy]]\nplugin = 'zero'\nstage = 3\nreduce = 'step'\n";
  const std::vector<std::string> split = {"precision.compute=bf16", "precision.master=split",
                                          "precision.gradient=bf16"};
  return {{"one", "", {}},
          {"one_microbatch", "", {"batch.order=depth_first", "batch.micro=4", "batch.global=4"}},
          {"tied", "", {"model.tied=true"}},
          {"split", "", split},
          {"moments", "", with(split, {"precision.moments=bf16"})},
          {"codes", "", with(split, {"precision.moments=8bit"})},
          {"average", "", {"optimizer.average=0.9"}},
          {"momentum", "", {"optimizer.plugin=sgd", "optimizer.momentum=0.9", "optimizer.lr=0.3"}},
          {"data", data, {}},
          {"zero3", zero3, {}},
          {"tensor", "[mesh]\ntp = 2\n[[strategy]]\nplugin = 'tensor'\nsequence = true\n", {}}};
}

// Counts the calls of a function that are run.
class Count final : public Probe {
 public:
  Count(const Plan& plan, FunctionKind kind) : plan_(plan), kind_(kind) {}
  void begin_call(std::int32_t, const Call& call, std::int64_t, double) noexcept override {
    calls += plan_.functions[call.function].kind == kind_ && call.instance > 0;
  }
  void end_call(std::int32_t, const Call&, std::int64_t, double) noexcept override {}

  std::atomic<int> calls = 0;

 private:
  const Plan& plan_;
  const FunctionKind kind_;
};

struct Trained {
  std::vector<double> losses, norms, parameters;
  std::vector<bool> kept;
  int speculated = 0;  // number of calls
};

Trained trained(const Recipe& recipe) {
  Trained result;
  std::vector<std::unique_ptr<Count>> counts(static_cast<std::size_t>(mesh_of(recipe).world()));
  const Probes probes = [&](const Assembly& assembly, Communicators*) {
    auto& own = counts[static_cast<std::size_t>(assembly.rank())];
    own = std::make_unique<Count>(assembly.plan(), FunctionKind::speculate);
    return std::vector<Probe*>{own.get()};
  };
  const auto body = [&](Trainer& trainer) {
    Trained own;
    for (int step = 0; step < steps; ++step) {
      const StepResult stepped = trainer.step();
      own.losses.push_back(stepped.loss);
      own.norms.push_back(stepped.grad_norm);
      own.kept.push_back(stepped.kept);
    }
    own.parameters = parameters_of(trainer);
    if (trainer.assembly().rank() == 0) result = std::move(own);
  };
  run_local_ranks(recipe, plugins().places(), body, probes);
  for (const auto& count : counts) result.speculated += count->calls;
  return result;
}

std::string everything_on_host(bool speculates) {
  return offloaded(true, true, true) + (speculates ? "" : "speculate = 'none'\n");
}

void expect_same(const Trained& one, const Trained& other) {
  EXPECT_EQ(one.losses, other.losses);
  EXPECT_EQ(one.norms, other.norms);
  EXPECT_EQ(one.kept, other.kept);
  EXPECT_EQ(one.parameters, other.parameters);
}

class Speculation : public testing::TestWithParam<std::tuple<Layout, Target>> {
 protected:
  static Recipe recipe_of(bool speculates, const std::vector<std::string>& more,
                          const std::string& text = "") {
    const auto& [layout, target] = GetParam();
    const std::vector<std::string> common = {"model.layers=3", "optimizer.lr=0.01",
                                             "batch.order=breadth_first"};
    return tiny_recipe(with(with(with(target.sets, common), layout.sets), more),
                       text + layout.text + everything_on_host(speculates));
  }
};

TEST_P(Speculation, HasTheBitsOfUpdatesThatWait) {
  const std::vector<std::string> clip = {"optimizer.clip=" + std::to_string(limit)};
  const Trained speculating = trained(recipe_of(true, clip)), waiting = trained(recipe_of(false, clip));
  expect_same(speculating, waiting);
  EXPECT_EQ(waiting.speculated, 0);
  const auto beyond =
      std::count_if(waiting.norms.begin(), waiting.norms.end(), [](double norm) { return norm > limit; });
  EXPECT_GT(beyond, 0);
  EXPECT_LT(beyond, steps);
  EXPECT_GT(speculating.speculated, 0);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Speculation,
                         testing::Combine(testing::ValuesIn(speculating_layouts()),
                                          testing::ValuesIn(targets())),
                         [](const auto& tested) {
                           return std::string(std::get<0>(tested.param).name) + "_" +
                                  std::get<1>(tested.param).name;
                         });

// Step 3 has a gradient that is not finite.
TEST(SpeculationOfAStep, ThatIsNotKeptLeavesNoTrace) {
  const std::string spoil =
      "[plugins]\nops = ['spoil']\n[[strategy]]\nplugin = 'spoil'\nsegment = 'block'\ntensor = "
      "'down.weight'\n"
      "layer = 2\nsample = 21\n";
  const std::vector<std::string> sets = {"model.layers=4", "batch.global=8", "batch.micro=8",
                                         "run.on_nonfinite=skip"};
  const Trained speculating = trained(tiny_recipe(sets, spoil + everything_on_host(true))),
                waiting = trained(tiny_recipe(sets, spoil + everything_on_host(false)));
  expect_same(speculating, waiting);
  EXPECT_FALSE(waiting.kept[2]);
  EXPECT_GT(speculating.speculated, 0);
}

struct Planned {
  std::int64_t held = 0, needed = 0;  // bytes of older state, and of the host in all
};

Planned planned(bool speculates, const std::vector<std::string>& more = {}) {
  const std::vector<std::string> sets = {"model.layers=8", "optimizer.clip=1", "batch.micro=4",
                                         "batch.global=4"};
  const Assembly assembly(tiny_recipe(with(sets, more), everything_on_host(speculates)), plugins());
  return {assembly.plan().layout.memory.bytes[Region::arrived],
          assembly.bytes_in_memory_of(0, assembly.plan()) + assembly.process_bytes_of(0)};
}

// Copies of older state take what other uses leave of the host's memory.
TEST(SpeculationInAPlan, HoldsAsManyLayersAsThereIsRoomFor) {
  const Planned waiting = planned(false), speculating = planned(true);
  EXPECT_EQ(waiting.held, 0);
  EXPECT_GT(speculating.held, 0);
  const double room = static_cast<double>(waiting.needed) + 0.6 * static_cast<double>(speculating.held);
  const Planned some = planned(true, {"device.plan_gib=" + std::to_string(room / (1 << 30))});
  EXPECT_GT(some.held, 0);
  EXPECT_LT(some.held, speculating.held);
  constexpr std::int64_t numbers = 4096;  // bytes that they take even if no layer has room
  const double least = static_cast<double>(waiting.needed + numbers);
  EXPECT_EQ(planned(true, {"device.plan_gib=" + std::to_string(least / (1 << 30))}).held, 0);
}

}  // namespace
}  // namespace prun::test::speculation_test
