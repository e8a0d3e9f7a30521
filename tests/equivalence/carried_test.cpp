// Values that segments carry for all behind them: every schedule comes to the bits of one rank, a rank has
// them once a microbatch, and they travel once to each rank that has them not yet.
#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <set>

#include "inspect/verify.hpp"
#include "support/assembly_fixture.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::carried_test {
namespace {

struct Pipes {
  const char* schedule;
  int ranks, chunks, microbatches;

  friend std::ostream& operator<<(std::ostream& out, const Pipes& p) {
    return out << p.schedule << ' ' << p.ranks << " x " << p.chunks << ", " << p.microbatches
               << " microbatches";
  }
};

// 2 layers a half: first, front, front, middle, back, back, head.
constexpr std::int64_t middle = 3, last_back = 5, batch = 2, seq = 8, hidden = 16, element = 8;

Recipe recipe_of(const std::vector<std::string>& sets, const std::string& layout = {}) {
  std::vector<std::string> all = {"model.plugin=relay",   "model.hidden=16",  "model.heads=2",
                                  "model.ffn=32",         "model.seq=8",      "model.layers=2",
                                  "device.threads=1",     "device.pin=false", "precision.compute=fp64",
                                  "precision.state=fp64", "run.poison=true",  "optimizer.clip=0",
                                  "batch.micro=2"};
  all.insert(all.end(), sets.begin(), sets.end());
  return tiny_recipe(all, layout);
}

std::string pipeline(const Pipes& p) {
  return "[mesh]\npp = " + std::to_string(p.ranks) + "\n[[strategy]]\nplugin = 'pipeline'\nschedule = '" +
         p.schedule + "'\nchunks = " + std::to_string(p.chunks) + "\n";
}
Recipe recipe_of(const Pipes& p, std::vector<std::string> sets = {}) {
  sets.push_back("batch.global=" + std::to_string(batch * p.microbatches));
  return recipe_of(sets, pipeline(p));
}

class Carried : public testing::TestWithParam<Pipes> {};
INSTANTIATE_TEST_SUITE_P(Schedules, Carried,
                         testing::Values(Pipes{"1f1b", 2, 1, 4}, Pipes{"1f1b", 4, 1, 6},
                                         Pipes{"gpipe", 3, 1, 4}, Pipes{"interleaved", 2, 2, 4},
                                         Pipes{"interleaved", 2, 3, 4}, Pipes{"interleaved", 3, 2, 6},
                                         Pipes{"zb-h1", 4, 1, 6}, Pipes{"zb-v", 2, 2, 5},
                                         Pipes{"zb-v", 3, 2, 6}, Pipes{"1f1b", 7, 1, 3}));

TEST_P(Carried, HasTheBitsOfOneRank) {
  const LayoutVerdict verdict = verify_layout(recipe_of(GetParam()), plugins().places(), 4);
  EXPECT_EQ(verdict.ranks, GetParam().ranks);
  EXPECT_TRUE(verdict.equal()) << to_text(verdict);
  for (const Difference* difference : {&verdict.loss, &verdict.gradient, &verdict.parameter})
    EXPECT_EQ(difference->value, 0) << to_text(verdict);
}

// The gradients of a table that two ranks hold are summed by themselves first.
TEST_P(Carried, GoesBesideATableThatTwoStagesHold) {
  const LayoutVerdict verdict =
      verify_layout(recipe_of(GetParam(), {"model.tied=true"}), plugins().places(), 3);
  EXPECT_TRUE(verdict.equal()) << to_text(verdict);
}

TEST_P(Carried, IsEvaluatedAsOnOneRank) {
  const std::vector<std::string> sets = {"data.validation=0.2", "eval.every=1", "eval.batches=2"};
  const auto loss_of = [](const Recipe& recipe) {
    double loss = 0;
    run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
      trainer.step();
      const double found = trainer.evaluate().whole.loss;
      if (trainer.assembly().rank() == 0) loss = found;
    });
    return loss;
  };
  std::vector<std::string> alone = sets;
  alone.push_back("batch.global=" + std::to_string(batch * GetParam().microbatches));
  EXPECT_EQ(loss_of(recipe_of(GetParam(), sets)), loss_of(recipe_of(alone)));
}

// Bytes of a microbatch: the shorter and wider value and what the middle carries, which have gradients, and
// the types of tokens, which have none.
constexpr std::int64_t boundary = batch * seq * hidden * element, some = batch * 3 * 2 * hidden * element,
                       seen = boundary, kinds = batch * seq * 4;

struct Sent {
  std::int64_t forward = 0, backward = 0;
  friend bool operator==(const Sent&, const Sent&) = default;
};

// Of all ranks together a step, by borders between stages. `first` is the first instance of each stage.
Sent by_formula(const Pipes& p, const std::vector<std::int64_t>& first,
                const std::function<std::int64_t(std::int64_t)>& holder) {
  Sent sent;
  std::set<std::pair<std::int64_t, bool>> have = {{0, false}};  // ranks, and which of the two values
  for (std::size_t stage = 1; stage < first.size(); ++stage) {
    const auto s = static_cast<std::int64_t>(stage);
    const bool behind = first[stage] > middle, reads_first = first[stage] <= last_back;
    if (first[stage - 1] <= middle && behind) have.insert({holder(s - 1), true});
    if (holder(s) == holder(s - 1)) continue;
    sent.forward += boundary;
    sent.backward += boundary + (reads_first ? some : 0) + (behind ? seen : 0);
    if (have.insert({holder(s), false}).second) sent.forward += (reads_first ? some : 0) + kinds;
    if (behind && have.insert({holder(s), true}).second) sent.forward += seen;
  }
  return {sent.forward * p.microbatches, sent.backward * p.microbatches};
}

// As the comm plugins count it.
Sent counted(const Recipe& recipe, std::vector<std::int64_t>& first) {
  std::mutex mutex;
  Sent sent;
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    trainer.step();
    const Plan& plan = trainer.assembly().plan();
    const std::lock_guard lock(mutex);
    for (std::size_t q = 0; q < plan.queues.size(); ++q) {
      if (!plan.queues[q].communicates()) continue;
      const auto bytes = static_cast<std::int64_t>(trainer.communicators()->counters(q).bytes_sent);
      if (plan.queues[q].name.find(".forward.") != std::string::npos) sent.forward += bytes;
      if (plan.queues[q].name.find(".backward.") != std::string::npos) sent.backward += bytes;
    }
    const auto& stages = trainer.assembly().pipeline()->stages;
    first.clear();
    for (std::size_t s = 0; s < stages.size(); ++s)
      first.push_back(stages[static_cast<std::int32_t>(s)].first);
  });
  return sent;
}

TEST_P(Carried, TravelsOnceToEachRankAndItsGradientOverEachBorder) {
  const Pipes& p = GetParam();
  std::vector<std::int64_t> first;
  const Sent sent = counted(recipe_of(p), first);
  ASSERT_EQ(first.size(), static_cast<std::size_t>(p.ranks * p.chunks));
  const bool turns = std::string_view(p.schedule) == "zb-v";
  const Sent wanted = by_formula(p, first, [&](std::int64_t stage) {
    return turns && stage >= p.ranks ? 2 * p.ranks - 1 - stage : stage % p.ranks;
  });
  EXPECT_EQ(sent.forward, wanted.forward);
  EXPECT_EQ(sent.backward, wanted.backward);
}

std::int64_t carried_bytes(const Recipe& recipe, std::int64_t rank = 0) {
  return Assembly(recipe, plugins(), rank).plan().layout.memory.bytes[Region::carried];
}

TEST(CarriedMemory, IsOfMicrobatchesAndNotOfLayers) {
  const std::vector<std::string> clear = {"run.poison=false", "batch.global=8"};
  const auto with = [&](std::vector<std::string> sets) {
    sets.insert(sets.end(), clear.begin(), clear.end());
    return sets;
  };
  const std::int64_t one = carried_bytes(recipe_of(with({})));
  EXPECT_GE(one, 2 * some + 2 * seen + kinds);
  EXPECT_LT(one, 2 * some + 2 * seen + kinds + 5 * 512);
  EXPECT_EQ(carried_bytes(recipe_of(with({"model.layers=9"}))), one);
  EXPECT_EQ(carried_bytes(recipe_of(with({"batch.order=breadth_first"}))), 4 * one);
  // The last rank of 1F1B has one microbatch at a time, and room for the next.
  const Assembly last(recipe_of(Pipes{"1f1b", 4, 1, 4}, clear), plugins(), 3);
  EXPECT_EQ(last.plan().carried_slots, 2);
  // Chunks of a rank share what there is of a microbatch.
  const Assembly chunks(recipe_of(Pipes{"interleaved", 2, 3, 4}, clear), plugins(), 1);
  EXPECT_LE(chunks.plan().carried_slots, 5);
}

TEST(CarriedMemory, OtherOrdersAndPlacesChangeNothing) {
  const struct {
    std::vector<std::string> sets;
    const char* layout;
  } cases[] = {
      {{"batch.order=breadth_first"}, ""},
      {{"batch.interleave=2"}, ""},
      {{}, "[[strategy]]\nplugin = 'recompute'\nmode = 'full'\n"},
      {{}, "[[strategy]]\nplugin = 'recompute'\nmode = 'selective'\nops = ['linear', 'attention_across']\n"},
      {{},
       "[[strategy]]\nplugin = 'offload'\noptimizer = 'host'\nparameters = 'host'\nactivations = 'host'\n"},
  };
  for (const auto& c : cases) {
    std::vector<std::string> sets = c.sets;
    sets.emplace_back("batch.global=8");
    const LayoutVerdict verdict = verify_layout(recipe_of(sets, c.layout), plugins().places(), 3);
    for (const Difference* difference : {&verdict.loss, &verdict.gradient, &verdict.parameter})
      EXPECT_EQ(difference->value, 0) << c.layout << to_text(verdict);
  }
}

}  // namespace
}  // namespace prun::test::carried_test
