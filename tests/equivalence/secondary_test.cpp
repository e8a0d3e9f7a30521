// Parameters in parts over ranks of several hosts, with a copy among those of each: numbers are those without
// it, what travels between hosts is the formula's, and the copy's memory is in the plan.
#include "base/random.hpp"
#include "prun/block_codes.hpp"
#include "support/coded_runs.hpp"
#include "support/traffic_formulas.hpp"

namespace prun::test::secondary_test {
namespace {

const std::string both = "[[strategy]]\nplugin = 'zero'\nstage = 3\naxis = ['hosts', 'gpus']\n",
                  copied = both + "secondary = ['gpus']\n";
const std::string int8 = "precision.gather=int8", fp8 = "precision.gather=fp8";
const std::vector<std::string> exact = {"precision.compute=fp64", "precision.state=fp64", "device.pin=false",
                                        "device.threads=1", "run.poison=true"};

Recipe recipe_of(const std::string& text, const std::vector<std::string>& sets,
                 const std::vector<std::string>& more = exact) {
  std::vector<std::string> all = {"model.hidden=64", "model.heads=4",  "model.ffn=128",   "model.seq=8",
                                  "batch.micro=1",   "batch.global=8", "optimizer.clip=1"};
  all.insert(all.end(), more.begin(), more.end());
  all.insert(all.end(), sets.begin(), sets.end());
  return tiny_recipe(all, text);
}

// ---------------------------------------------------------------- numbers

class Secondary : public testing::TestWithParam<CodedLayout> {};

TEST_P(Secondary, EqualsOneRank) { expect_equals_one_rank(recipe_of(GetParam().text, GetParam().sets), 3); }

const std::string hosts = hosts_of(2, 2), recompute = "[[strategy]]\nplugin = 'recompute'\nmode = 'full'\n",
                  frozen = "[[optimizer.group]]\nmatch = 'block.up*'\nfrozen = true\n",
                  others = "[[optimizer.group]]\nmatch = '*'\nof = 'others'\nplugin = 'adamw'\n",
                  experts = "[[strategy]]\nplugin = 'experts'\naxis = 'gpus'\n";
const std::string with_tp = "[mesh]\nhosts = 2\ngpus = 2\ntp = 2\n" + hosts.substr(hosts.find("[[")) +
                            "[[strategy]]\nplugin = 'tensor'\n",
                  with_pp = "[mesh]\npp = 2\nhosts = 2\ngpus = 2\n" + hosts.substr(hosts.find("[[")) +
                            "[[strategy]]\nplugin = 'pipeline'\nschedule = '1f1b'\n",
                  with_cp = "[mesh]\nhosts = 2\ngpus = 2\ncp = 2\n" + hosts.substr(hosts.find("[[")) +
                            "[[strategy]]\nplugin = 'context'\naxis = 'cp'\n"
                            "[[strategy]]\nplugin = 'zero'\nstage = 3\naxis = ['hosts', 'gpus', 'cp']\n"
                            "secondary = ['gpus', 'cp']\n";

INSTANTIATE_TEST_SUITE_P(
    Layouts, Secondary,
    testing::Values(
        CodedLayout{"gpt", hosts + copied, {}},
        CodedLayout{"three_hosts", hosts_of(3, 2) + copied, {"batch.global=12"}},
        CodedLayout{"untied", hosts + copied, {"model.tied=false", "model.layers=4", "run.bucket_bytes=0B"}},
        CodedLayout{"llama", hosts + copied, {"model.plugin=llama", "model.kv_heads=2"}},
        CodedLayout{"recomputed", hosts + recompute + copied, {}},
        CodedLayout{"frozen", hosts + copied + frozen, {}},
        CodedLayout{"muon", hosts + copied + others, {"optimizer.plugin=muon"}},
        CodedLayout{"summed_once", hosts + copied + "reduce = 'step'\n", {}},
        CodedLayout{"vertically", hosts + copied, {"batch.order=breadth_first"}},
        CodedLayout{"side_by_side", hosts + copied, {"batch.interleave=2"}},
        CodedLayout{"tensor", with_tp + copied, {}},
        CodedLayout{"pipeline", with_pp + copied, {"model.layers=4"}},
        CodedLayout{"over_two_axes", with_cp, {"batch.global=4"}},
        CodedLayout{"experts",
                    hosts + experts + copied,
                    {"model.plugin=llama", "model.kv_heads=2", "model.experts=4", "model.choices=2"}},
        CodedLayout{"int8", hosts + copied, {int8}}, CodedLayout{"fp8", hosts + copied, {fp8}},
        CodedLayout{"int8_one_by_one", hosts + copied, {int8, "run.bucket_bytes=0B", "model.layers=4"}},
        CodedLayout{"both_in_codes", hosts + copied, {fp8, "precision.reduce=int8"}},
        CodedLayout{"int8_pipeline", with_pp + copied, {int8, "model.layers=4"}},
        CodedLayout{"int8_frozen", hosts + copied + frozen, {int8}}),
    [](const auto& layout) { return std::string(layout.param.name); });

// In the formats that are trained in, and on a device that copies beside what it computes.
TEST(SecondaryRanks, HaveTheBitsThatTheyHaveWithoutACopy) {
  for (const char* format : {"precision.compute=bf16", "precision.compute=fp32"})
    for (const char* gather : {"precision.gather=compute", "precision.gather=int8", "precision.gather=fp8"})
      for (const std::vector<std::string>& on :
           {std::vector<std::string>{"comm.default=ucx"},
            {"device.plugin=cpu-async", "comm.default=meet-async", "device.delay_us=20"}}) {
        std::vector<std::string> sets = {format, gather};
        sets.insert(sets.end(), on.begin(), on.end());
        EXPECT_EQ(run_ranks(recipe_of(hosts + copied, sets, {}), 3),
                  run_ranks(recipe_of(hosts + both, sets, {}), 3))
            << format << gather << on.front();
      }
}

// Meshes, models, formats of the gather, bundles and microbatches as they come.
TEST(SecondaryRanks, DrawnLayoutsEqualOneRank) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const RandomStream stream(seed, stream_id("secondary"));
    std::uint64_t drawn = 0;
    const auto one_of = [&](const std::vector<std::string>& list) {
      return list[stream.bits32(drawn++) % list.size()];
    };
    const std::string text = one_of({hosts_of(2, 2), hosts_of(3, 2), hosts_of(2, 3), hosts_of(2, 4)}) +
                             one_of({"", recompute}) + copied + one_of({"", "reduce = 'step'\n"});
    const std::vector<std::string> sets = {
        one_of({"precision.gather=compute", int8, fp8}),
        one_of({"model.plugin=gpt", "model.plugin=llama"}),
        one_of({"model.layers=1", "model.layers=2", "model.layers=5"}),
        one_of({"run.bucket_bytes=0B", "run.bucket_bytes=1GiB", "run.bucket_bytes=20KiB"}),
        one_of({"batch.global=24", "batch.global=48"}),
        one_of({"model.tied=true", "model.tied=false"}),
        one_of({"batch.order=auto", "batch.order=breadth_first"})};
    SCOPED_TRACE(text + testing::PrintToString(sets));
    expect_equals_one_rank(recipe_of(text, sets), 2);
  }
}

// A loss is evaluated by a copy of what is there then, and steps go on as if nothing had been.
TEST(SecondaryRanks, EvaluateBetweenSteps) {
  const std::string validation =
      "[[validation]]\nplugin = 'tokens'\npath = '" + (temporary_folder() / "tokens.bin").string() + "'\n";
  const std::string average = "[[strategy]]\nplugin = 'average'\ndecay = 0.5\nevaluate = true\n";
  const auto losses = [&](const std::string& zero, bool evaluates, const std::vector<std::string>& sets) {
    std::vector<double> all;
    std::vector<std::string> more = {"eval.every=1", "eval.batches=1"};
    more.insert(more.end(), sets.begin(), sets.end());
    run_local_ranks(recipe_of(hosts + zero + validation + average, more), plugins().places(),
                    [&](Trainer& trainer) {
                      for (int step = 0; step < 3; ++step) {
                        const double evaluated = evaluates ? trainer.evaluate().whole.loss : 0;
                        const double loss = trainer.step().loss;
                        if (trainer.assembly().rank() == 0) all.insert(all.end(), {evaluated, loss});
                      }
                    });
    return all;
  };
  for (const std::vector<std::string>& sets : {std::vector<std::string>{}, {int8}}) {
    const std::vector<double> with = losses(copied, true, sets), alone = losses(copied, false, sets);
    EXPECT_EQ(with, losses(both, true, sets));
    for (std::size_t i = 1; i < with.size(); i += 2) EXPECT_EQ(with[i], alone[i]) << i;
  }
}

// What a checkpoint holds is the parts, with a copy and without.
TEST(SecondaryCheckpoints, GoOnWithTheSameBitsWithACopyAndWithout) {
  const std::string out = (temporary_folder() / "secondary").string();
  const std::vector<std::string> sets = {"precision.compute=bf16", int8};
  const auto recipe = [&](const std::string& zero, const std::string& key) {
    std::vector<std::string> all = sets;
    all.push_back(key + out);
    return recipe_of(hosts + zero, all, {});
  };
  Numbers through = trained(recipe(copied, "run.out="), 4);
  trained(recipe(copied, "run.out="), 2, true);
  for (std::vector<double>& numbers : through) numbers.erase(numbers.begin(), numbers.begin() + 2);
  EXPECT_EQ(trained(recipe(copied, "run.resume="), 2), through);
  EXPECT_EQ(trained(recipe(both, "run.resume="), 2), through);
}

// ---------------------------------------------------------------- bytes

struct Traffic {
  std::uint64_t between = 0, within = 0;
};

Traffic sent_of(const Sizes& s, const std::string& text, const std::vector<std::string>& sets) {
  const auto set = [](const char* key, std::int64_t value) { return key + ("=" + std::to_string(value)); };
  std::vector<std::string> all = {set("model.hidden", s.hidden),
                                  set("model.heads", s.heads),
                                  set("model.ffn", s.ffn),
                                  set("model.seq", s.seq),
                                  set("model.layers", s.layers),
                                  set("model.vocab", s.vocab),
                                  set("batch.micro", s.batch),
                                  set("batch.global", s.batch * s.microbatches * s.dp),
                                  "model.tied=false",
                                  "run.bucket_bytes=0B"};
  all.insert(all.end(), sets.begin(), sets.end());
  const std::map<std::string, std::uint64_t> sent = sent_in_a_step(recipe_of(text, all, {}));
  return {sent.at("hosts.gather"), sent.at("gpus.gather")};
}

TEST(SecondaryBytes, AreThoseOfTheFormula) {
  for (const auto& [of_hosts, within] : {std::pair{2, 2}, {3, 2}, {2, 4}})
    for (const std::int64_t microbatches : {1, 3}) {
      Sizes s;
      s.batch = 1, s.seq = 16, s.layers = 3, s.dp = of_hosts * within, s.microbatches = microbatches;
      const Traffic sent = sent_of(s, hosts_of(of_hosts, within) + copied, {});
      const Share share = share_of(s, 0);
      EXPECT_EQ(sent.between, static_cast<std::uint64_t>(copied_between_hosts(s, share, within)));
      EXPECT_EQ(sent.within, static_cast<std::uint64_t>(gathered_within_hosts(s, share, within)));
    }
}

// Of all that comes in blocks, 132 bytes for 512, between hosts as within; gains and biases as they are.
TEST(SecondaryBytes, InCodesAreThoseOfTheBlocks) {
  Sizes s;
  s.batch = 1, s.seq = 32, s.layers = 3, s.dp = 4, s.microbatches = 2;
  const std::int64_t layer = 4 * s.hidden * s.hidden + 2 * s.hidden * s.ffn,
                     tables = 2 * s.vocab * s.hidden + s.seq * s.hidden;
  const auto spared = [&](std::int64_t elements) {
    return static_cast<std::uint64_t>(elements * 4 - elements / code_block * code_block_bytes(8));
  };
  const Traffic whole = sent_of(s, hosts + copied, {});
  for (const std::string& gather : {int8, fp8}) {
    const Traffic coded = sent_of(s, hosts + copied, {gather});
    EXPECT_EQ(whole.between - coded.between, spared(s.layers * layer + tables) / 4);
    const Gathers gathers = gathers_of_whole(s);
    EXPECT_EQ(whole.within - coded.within, spared(gathers.layers * layer + gathers.head * tables) / 2);
  }
}

// ---------------------------------------------------------------- memory

TEST(SecondaryMemory, IsThatOfARanksPartOfTheCopy) {
  const auto parameters = [](const std::string& zero, const std::vector<std::string>& sets) {
    const Assembly assembly(recipe_of(hosts + zero, sets, {"device.threads=1"}), plugins());
    const Memory& memory = assembly.plan().layout.memory;
    std::int64_t all = 0, copies = 0;
    const Program& program = assembly.program();
    for (const Bucket& bucket : program.buckets()) {
      const std::int64_t layers = program.segment(bucket.segment).repeat;
      all += layers * program.local_bytes(bucket.all_parameters);
      for (const Id id : program.segment(bucket.segment).values)
        if (const Value& value = program.value(id);
            value.role == Role::fetched && value.lifetime == ValueLifetime::persistent &&
            value.bucket == program.value(bucket.own_parameters).bucket)
          copies += layers * program.local_bytes(id);
    }
    const std::int64_t planned = memory.bytes[static_cast<std::size_t>(Region::parameter)];
    EXPECT_GE(planned, copies);
    EXPECT_LT(planned, copies + 4096);  // each begins at a multiple of 256 bytes
    return std::pair{all, copies};
  };
  EXPECT_EQ(parameters(both, {}).second, 0);
  const auto [all, copies] = parameters(copied, {});
  EXPECT_EQ(copies, all / 2);
  EXPECT_LT(parameters(copied, {int8}).second, all / 2 * 35 / 100);
}

}  // namespace
}  // namespace prun::test::secondary_test
