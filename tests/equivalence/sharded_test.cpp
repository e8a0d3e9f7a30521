// Tensor parallelism and ZeRO: equal to one rank, in the memory that their papers promise, and resumable.
#include <gtest/gtest.h>

#include <mutex>

#include "inspect/verify.hpp"
#include "plan/exchange_needs.hpp"
#include "support/assembly_fixture.hpp"
#include "support/planned_traffic.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::sharded_test {
namespace {

// Ranks of `a` have other positions of a sequence: the gradients of some parameters are sums over it, others
// are not, and lie beside them.
constexpr const char* spread_sequence =
    "[mesh]\na = 2\ndp = 2\n[[strategy]]\nplugin = 'data'\n[[strategy]]\nplugin = 'zero'\nstage = 2\n"
    "[[strategy]]\nplugin = 'spread'\naxis = 'a'\ndims = ['seq']\n";

struct Layout {
  const char* name;
  const char* text;  // mesh and strategies
  std::vector<std::string> sets;
  friend std::ostream& operator<<(std::ostream& out, const Layout& l) { return out << l.name; }
};

std::string zero(int stage) {
  return "[[strategy]]\nplugin = 'zero'\nstage = " + std::to_string(stage) + "\n";
}

Recipe recipe_of(const std::string& text, const std::vector<std::string>& sets, bool exact = true) {
  std::vector<std::string> all = {"model.hidden=16",  "model.heads=4",    "model.ffn=32",
                                  "model.seq=8",      "batch.micro=1",    "batch.global=8",
                                  "device.pin=false", "device.threads=1", "run.poison=true"};
  if (exact) all.insert(all.end(), {"precision.compute=fp64", "precision.state=fp64"});
  all.insert(all.end(), sets.begin(), sets.end());
  return tiny_recipe(all, text);
}

constexpr const char* dp2 = "[mesh]\ndp = 2\n[[strategy]]\nplugin = 'data'\n";
constexpr const char* tp2 = "[mesh]\ntp = 2\n[[strategy]]\nplugin = 'tensor'\n";
constexpr const char* dp2tp2 =
    "[mesh]\ndp = 2\ntp = 2\n[[strategy]]\nplugin = 'data'\n[[strategy]]\nplugin = 'tensor'\nsequence = "
    "true\n";

class Sharded : public testing::TestWithParam<Layout> {};

TEST_P(Sharded, EqualsOneRank) {
  const Recipe recipe = recipe_of(GetParam().text, GetParam().sets);
  const LayoutVerdict verdict = verify_layout(recipe, plugins().places(), 20);
  EXPECT_TRUE(verdict.exact_arithmetic);
  EXPECT_TRUE(verdict.equal()) << to_text(verdict);
}

const std::string dp2_zero1 = dp2 + zero(1), dp2_zero2 = dp2 + zero(2), dp2_zero3 = dp2 + zero(3),
                  all_zero1 = dp2tp2 + zero(1), all_zero2 = dp2tp2 + zero(2), all_zero3 = dp2tp2 + zero(3),
                  dp2_zero3_frozen = dp2_zero3 +
                                     "[[optimizer.group]]\nmatch = '*token*'\nfrozen = true\n"
                                     "[[optimizer.group]]\nmatch = 'block.up*'\nfrozen = true\n";

INSTANTIATE_TEST_SUITE_P(
    Layouts, Sharded,
    testing::Values(
        Layout{"tensor", tp2, {}}, Layout{"tensor4", tp2, {"mesh.tp=4"}},
        Layout{"sequence", tp2, {"strategy.0.sequence=true", "model.dropout=0.2"}},
        Layout{"sequence_untied", tp2, {"strategy.0.sequence=true", "model.tied=false"}},
        Layout{"llama_sequence", tp2, {"strategy.0.sequence=true", "model.plugin=llama", "model.kv_heads=2"}},
        Layout{"llama_queries", tp2, {"mesh.tp=4", "model.plugin=llama", "model.kv_heads=2"}},
        Layout{"llama_queries_alone",
               tp2,
               {"mesh.tp=4", "model.plugin=llama", "model.kv_heads=1", "model.qkv_bias=true"}},
        Layout{"llama_queries_sequence",
               tp2,
               {"mesh.tp=4", "strategy.0.sequence=true", "model.plugin=llama", "model.kv_heads=2"}},
        Layout{"llama_queries_zero3",
               all_zero3.c_str(),
               {"mesh.tp=4", "model.plugin=llama", "model.kv_heads=2", "model.heads=8"}},
        Layout{"zero1", dp2_zero1.c_str(), {}}, Layout{"zero2", dp2_zero2.c_str(), {}},
        Layout{"zero3", dp2_zero3.c_str(), {}},
        Layout{"zero3_untied", dp2_zero3.c_str(), {"model.tied=false"}},
        Layout{"zero3_frozen", dp2_zero3_frozen.c_str(), {}},
        Layout{"zero3_summed_once", dp2_zero3.c_str(), {"strategy.1.reduce=step"}},
        Layout{"zero3_of_3_ranks", dp2_zero3.c_str(), {"mesh.dp=3", "batch.pad=true"}},
        Layout{"zero2_sgd", dp2_zero2.c_str(), {"optimizer.plugin=sgd", "optimizer.momentum=0.9"}},
        Layout{"pipeline",
               "[mesh]\npp = 2\n[[strategy]]\nplugin = 'pipeline'\nschedule = '1f1b'\n",
               {"model.layers=4"}},
        Layout{"zero1_behind_a_spread_sequence", spread_sequence, {"strategy.1.stage=1"}},
        Layout{"zero2_behind_a_spread_sequence", spread_sequence, {}},
        Layout{"zero3_behind_a_spread_sequence", spread_sequence, {"strategy.1.stage=3"}},
        Layout{"everything1", all_zero1.c_str(), {}}, Layout{"everything2", all_zero2.c_str(), {}},
        Layout{"everything3", all_zero3.c_str(), {"model.dropout=0.1"}}),
    [](const auto& layout) { return std::string(layout.param.name); });

// Two samples a rank, of 512 x 256 numbers of eight bytes each: exchanged one by one, by a plugin that gets
// them all at once, and through pinned memory as well.
TEST(Sequence, InPiecesEqualsOneRank) {
  const std::vector<std::string> cpu = {"run.poison=true"}, async = {"device.plugin=cpu-async"};
  for (const auto& [device, comm] :
       {std::pair(cpu, "ucx"), std::pair(async, "meet-async"), std::pair(async, "ucx")}) {
    std::vector<std::string> sets = {"strategy.0.sequence=true",
                                     "model.layers=1",
                                     "model.seq=1024",
                                     "model.hidden=256",
                                     "model.heads=2",
                                     "model.ffn=64",
                                     "batch.micro=2",
                                     "batch.global=2",
                                     "precision.compute=fp64",
                                     "precision.state=fp64",
                                     std::string("comm.default=") + comm};
    sets.insert(sets.end(), device.begin(), device.end());
    const LayoutVerdict verdict = verify_layout(tiny_recipe(sets, tp2), plugins().places(), 2);
    EXPECT_TRUE(verdict.equal()) << comm << "\n" << to_text(verdict);
  }
}

// A table of 16 MiB, through pinned memory that holds 4 MiB at a time: its sum, and its parts.
Recipe in_chunks(const std::string& layout) {
  return tiny_recipe({"device.plugin=cpu-async", "comm.default=ucx", "model.layers=1", "model.hidden=128",
                      "model.vocab=16384", "model.seq=8", "batch.micro=1", "batch.global=4",
                      "precision.compute=fp64", "precision.state=fp64"},
                     layout);
}

TEST(Staged, ExchangesInChunksEqualOneRank) {
  for (const std::string& layout : {std::string(dp2), dp2_zero2, dp2_zero3}) {
    const LayoutVerdict verdict = verify_layout(in_chunks(layout), plugins().places(), 3);
    EXPECT_TRUE(verdict.equal()) << layout << to_text(verdict);
  }
}

TEST(Staged, ThePlanSaysWhatIsSentInChunks) {
  run_local_ranks(in_chunks(dp2_zero3), plugins().places(), [](Trainer& trainer) {
    trainer.step();
    expect_planned_traffic(trainer, [](const QueueTraffic& queue) {
      const bool large = queue.needs.bytes_sent > (1 << 20);
      EXPECT_EQ(queue.staging.threads, large ? 1 : 0);
      EXPECT_LE(queue.staging.bytes, large ? 2 * 6 << 20 : 1 << 20);
    });
  });
}

// ---------------------------------------------------------------- memory

Memory memory_of(int dp, int stage) {
  std::string text = data_parallel(dp);
  if (stage > 0) text += zero(stage);
  const Recipe recipe =
      recipe_of(text, {"model.layers=8", "model.hidden=64", "model.ffn=256", "model.vocab=64"}, false);
  return Assembly(recipe, plugins()).plan().layout.memory;
}

std::int64_t of(const Memory& memory, Region region) {
  return memory.bytes[static_cast<std::size_t>(region)];
}

// Whatever a stage keeps in parts falls with the number of ranks, and nothing of it is whole; the padding of
// a bucket is under 1 KiB a member.
TEST(ZeroMemory, WhatAStageKeepsInPartsFallsWithTheRanks) {
  const std::int64_t padding = 200 * 1024;
  const Memory whole = memory_of(1, 0);
  for (int dp : {2, 4, 8}) {
    for (int stage : {1, 2, 3}) {
      const Memory memory = memory_of(dp, stage);
      std::int64_t parts = of(whole, Region::state);
      if (stage >= 2) parts += of(whole, Region::gradient);
      if (stage >= 3) parts += of(whole, Region::parameter);
      EXPECT_LE(of(memory, Region::state), parts / dp + padding) << "dp " << dp << " stage " << stage;
      EXPECT_EQ(of(memory, Region::gradient) > 0, stage < 2);
      EXPECT_EQ(of(memory, Region::unreduced) > 0, stage >= 2);
      EXPECT_EQ(of(memory, Region::parameter) > 0, stage < 3);
      EXPECT_EQ(of(memory, Region::gathered) > 0, stage == 3);
    }
  }
}

// The models of `prun bench zero` in docs/measured/training_on_two_gpus.md.
TEST(ZeroMemory, FallsWithTheStage) {
  const std::vector<std::string> small = {"model.layers=12", "model.hidden=512", "model.heads=8",
                                          "model.seq=512", "batch.global=8"},
                                 large = {"model.layers=24", "model.hidden=1024", "model.heads=16",
                                          "model.seq=1024", "batch.global=16"};
  for (std::vector<std::string> sets : {small, large})
    for (const char* tied : {"model.tied=true", "model.tied=false"}) {
      sets.insert(sets.end(), {"model.vocab=50304", "batch.micro=2", "device.threads=2", tied});
      std::vector<std::int64_t> bytes;
      for (int stage = 0; stage < 4; ++stage)
        bytes.push_back(Assembly(tiny_recipe(sets, dp2 + (stage > 0 ? zero(stage) : "")), plugins())
                            .plan()
                            .layout.memory.total());
      for (std::size_t stage = 1; stage < bytes.size(); ++stage)
        EXPECT_LT(bytes[stage], bytes[stage - 1]) << sets.front() << " " << tied << " stage " << stage;
    }
}

// Gradients that wait to be summed have the memory of what the head needs while it runs.
TEST(ZeroMemory, UnsummedGradientsLieWhereNobodyHasScratch) {
  const Assembly assembly(
      tiny_recipe({"model.layers=12", "model.hidden=512", "model.heads=8", "model.seq=512",
                   "model.vocab=50304", "batch.micro=2", "batch.global=8"},
                  dp2_zero2),
      plugins());
  const Plan& plan = assembly.plan();
  const prun::Layout::Range& range = plan.layout.ranges.front();
  std::int64_t within = 0;
  for (std::size_t i = 1; i < plan.instances.size(); ++i) {
    const std::int64_t base = range.instances[static_cast<std::size_t>(Region::unreduced)][i].base;
    EXPECT_GE(base, range.scratch.base);
    within += base < range.scratch.base + of(range.memory, Region::scratch);
  }
  EXPECT_GT(within, 0);
}

// Two blocks of ten, or a block and the table.
TEST(ZeroMemory, NoMoreIsGatheredThanOneUseAndTheNext) {
  for (const char* vocab : {"model.vocab=64", "model.vocab=4096"}) {
    const Recipe recipe = recipe_of(
        dp2_zero3, {"model.layers=10", "model.tied=false", vocab, "run.poison=false", "run.bucket_bytes=0B"},
        false);
    const Assembly assembly(recipe, plugins());
    const Program& program = assembly.program();
    std::map<std::string, std::int64_t> bytes;
    for (const Bucket& bucket : program.buckets())
      bytes[program.segment(bucket.segment).name] += program.local_bytes(bucket.all_parameters);
    const Memory& memory = assembly.plan().layout.memory;
    const std::int64_t most =
        std::max({2 * bytes["block"], bytes["block"] + bytes["embedding"], bytes["block"] + bytes["head"]});
    EXPECT_LE(of(memory, Region::gathered), most + 8 * 256) << vocab;
    // The table's gradients may still travel when those of the next microbatch's head begin.
    EXPECT_LE(of(memory, Region::unreduced), std::max(most, bytes["embedding"] + bytes["head"]) + 8 * 256)
        << vocab;
  }
}

TEST(ZeroMemory, FrozenParametersAreKeptInPartsToo) {
  const Memory memory = Assembly(recipe_of(dp2_zero3_frozen, {}, false), plugins()).plan().layout.memory;
  EXPECT_EQ(of(memory, Region::parameter), 0);
  EXPECT_GT(of(memory, Region::gathered), 0);
}

TEST(ZeroMemory, GradientsSummedOnceAStepAreKeptWhole) {
  const auto memory = [](const char* reduce) {
    return Assembly(recipe_of(dp2_zero3, {std::string("strategy.1.reduce=") + reduce}, false), plugins())
        .plan()
        .layout.memory;
  };
  EXPECT_EQ(of(memory("microbatch"), Region::gradient), 0);
  EXPECT_GT(of(memory("step"), Region::gradient), 0);
  EXPECT_EQ(of(memory("step"), Region::unreduced), 0);
}

TEST(TensorMemory, ParametersAndActivationsFallWithTheRanks) {
  const auto memory = [](int tp, bool sequence) {
    const std::string text =
        "[mesh]\ntp = " + std::to_string(tp) +
        "\n[[strategy]]\nplugin = 'tensor'\nsequence = " + (sequence ? "true\n" : "false\n");
    return Assembly(
               recipe_of(text, {"model.layers=4", "model.hidden=64", "model.ffn=256", "run.poison=false"},
                         false),
               plugins())
        .plan()
        .layout.memory;
  };
  const Memory one = memory(1, false), plain = memory(4, false), sequence = memory(4, true);
  EXPECT_LT(of(plain, Region::parameter), of(one, Region::parameter) / 3);
  EXPECT_LT(of(sequence, Region::slot), of(plain, Region::slot));
  EXPECT_LT(of(sequence, Region::slot), of(one, Region::slot) / 3);
  EXPECT_EQ(of(sequence, Region::boundary) * 4, of(one, Region::boundary));
}

// ---------------------------------------------------------------- resume

// Losses of the last steps, of every rank; saves or resumes on the way.
std::vector<std::vector<double>> losses(const Recipe& recipe, int steps, bool save) {
  std::vector<std::vector<double>> all(static_cast<std::size_t>(mesh_of(recipe).world()));
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    std::vector<double>& mine = all[static_cast<std::size_t>(trainer.assembly().rank())];
    for (int step = 0; step < steps; ++step) mine.push_back(trainer.step().loss);
    if (save) trainer.save();
  });
  return all;
}

// What travels together is summed as it is alone.
TEST_P(Sharded, BundlesKeepEveryBit) {
  const auto trained = [&](const char* bundle) {
    std::vector<std::string> sets = GetParam().sets;
    sets.push_back(std::string("run.bucket_bytes=") + bundle);
    return run_ranks(recipe_of(GetParam().text, sets, false), 2);
  };
  EXPECT_TRUE(trained("0B") == trained("1GiB"));
}

TEST_P(Sharded, GoesOnFromItsCheckpointWithTheSameBits) {
  const std::string out = (temporary_folder() / ("resume-" + std::string(GetParam().name))).string();
  std::vector<std::string> sets = GetParam().sets;
  sets.push_back("run.out=" + out);
  const Recipe recipe = recipe_of(GetParam().text, sets, false);
  const auto through = losses(recipe, 6, false);
  const auto first = losses(recipe, 3, true);
  const auto second = losses(recipe.with("run.resume", out), 3, false);
  for (std::size_t rank = 0; rank < through.size(); ++rank) {
    std::vector<double> joined = first[rank];
    joined.insert(joined.end(), second[rank].begin(), second[rank].end());
    EXPECT_EQ(joined, through[rank]) << "rank " << rank;
  }
}

// The heads come first on that axis, so its ranks would all take the whole batch.
TEST(Sharding, ABatchThatIsSplitBehindSomethingElseIsRefused) {
  const std::string data_on_tp = tp2 + std::string("[[strategy]]\nplugin = 'data'\naxis = 'tp'\n");
  try {
    Assembly(recipe_of(data_on_tp, {}), plugins());
    FAIL() << "it was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("batch.micro = 1: a rank would have 2 sequences of it"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace prun::test::sharded_test
