// prun ckpt: what it says of checkpoints, and does with them.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/json.hpp"
#include "binary.hpp"
#include "support/assembly_fixture.hpp"
#include "support/saved.hpp"
#include "support/temp_folder.hpp"

namespace prun::test {
namespace {

namespace fs = std::filesystem;

class Ckpt : public testing::Test {
 protected:
  Ckpt() {
    const std::string file = folder_.write(
        "ckpt.toml", tiny_recipe({"run.steps=6", "run.save_every=2", "run.out=" + out_, "batch.micro=2"},
                                 data_parallel(2) + "[[strategy]]\nplugin = 'zero'\nstage = 2\n")
                         .resolved_toml());
    const Result run = prun({file});
    EXPECT_EQ(run.code, 0) << run.out;
  }

  Result ckpt(std::vector<std::string> words) const {
    words.insert(words.begin(), "ckpt");
    return prun(words);
  }
  void expect(const Result& result, int code, const std::string& part) const {
    EXPECT_EQ(result.code, code) << result.out;
    EXPECT_NE(result.out.find(part), std::string::npos) << "wanted: " << part << "\ngot: " << result.out;
  }
  std::string step(int number) const { return out_ + "/step-0000000" + std::to_string(number); }
  void damage(const std::string& file) const {
    std::string bytes = read_file(file);
    bytes[bytes.size() - 100] ^= 1;
    std::ofstream(file, std::ios::binary) << bytes;
  }

  const TempFolder folder_;
  const std::string out_ = folder_ / "run";
};

TEST_F(Ckpt, LsNamesAllAndTheLatest) {
  const std::string list = ckpt({"ls", out_}).out;
  EXPECT_LT(list.find("step-00000006"), list.find("step-00000004"));
  EXPECT_LT(list.find("step-00000004"), list.find("step-00000002"));
  EXPECT_NE(list.find("2 files  dp=2  latest\n"), std::string::npos) << list;
  damage(step(4) + "/manifest.json");
  expect(ckpt({"ls", out_}), 0, "step-00000004 cannot be used: ");
  expect(ckpt({"ls", folder_.path()}), 2, "holds no checkpoint");
}

TEST_F(Ckpt, SpeaksJson) {
  const JsonValue list = parse_json(ckpt({"ls", out_, "--json"}).out, "ls");
  ASSERT_EQ(list.as_array().size(), 3u);
  const JsonValue& latest = list.as_array()[0];
  EXPECT_EQ(latest.at("step").as_int64(), 6);
  EXPECT_EQ(latest.at("mesh").as_string(), "dp=2");
  EXPECT_TRUE(latest.at("latest").as_bool());
  const JsonValue shown = parse_json(ckpt({"show", out_, "--json"}).out, "show");
  EXPECT_EQ(shown.at("bytes").as_int64(), latest.at("bytes").as_int64());
  EXPECT_EQ(shown.at("recipe").at("run.steps").as_string(), "6");
  const JsonArray& tensors = shown.at("tensors").as_array();
  EXPECT_TRUE(std::any_of(tensors.begin(), tensors.end(), [](const JsonValue& tensor) {
    return tensor.at("name").as_string() == "block.0.qkv.weight.m" &&
           tensor.at("type").as_string() == "F32" && tensor.at("shape").as_array().size() == 4;
  }));
}

TEST_F(Ckpt, VerifySaysAsMuchAsIsAsked) {
  EXPECT_EQ(ckpt({"verify", out_, "--quiet"}).out, "");
  damage(step(4) + "/rank-00001.safetensors");
  const Result quiet = ckpt({"verify", out_, "--quiet"});
  EXPECT_EQ(quiet.code, 2);
  EXPECT_EQ(quiet.out.find("good"), std::string::npos) << quiet.out;
  EXPECT_NE(quiet.out.find("step-00000004: damaged: "), std::string::npos) << quiet.out;
  const Result json = ckpt({"verify", out_, "--json"});
  EXPECT_EQ(json.code, 2);
  const JsonValue verdicts = parse_json(json.out, "verify");
  for (const JsonValue& verdict : verdicts.as_array())
    EXPECT_EQ(verdict.at("troubles").as_array().empty(),
              !verdict.at("checkpoint").as_string().ends_with("step-00000004"));
}

TEST_F(Ckpt, ShowSaysWhatItIsOf) {
  const Result shown = ckpt({"show", out_});
  expect(shown, 0, "progress    step 6, 6 updates, 24 samples\nranks       dp=2\n");
  expect(shown, 0, "plugin      optimizer adamw ");
  expect(shown, 0, "  block.0.qkv.weight.m F32[");
  expect(ckpt({"show", step(2), "--recipe"}), 0, "run.save_every = 2\n");
}

TEST_F(Ckpt, VerifyFindsEachDamagedTensorOfEach) {
  expect(ckpt({"verify", out_}), 0, "step-00000006: good, ");
  damage(step(4) + "/rank-00001.safetensors");
  damage(step(2) + "/manifest.json");
  const Result found = ckpt({"verify", out_});
  expect(found, 2, "step-00000004/rank-00001.safetensors: tensor '");
  expect(found, 2, "step-00000002/manifest.json does not have the checksum");
  expect(found, 2, "step-00000006: good, ");
  expect(ckpt({"verify", step(6)}), 0, "1 checkpoints read");
}

TEST_F(Ckpt, DiffTellsHowFarTensorsAreApart) {
  const Result apart = ckpt({"diff", step(4), step(6)});
  expect(apart, 1, "step: 4 and 6\n");
  expect(apart, 1, "block.0.qkv.weight: ");
  expect(apart, 1, " elements differ, by at most ");
  expect(ckpt({"diff", step(6), out_}), 0, "all tensors are the same\n");
}

TEST_F(Ckpt, ReshardWritesTheSameAsOtherFiles) {
  for (const int files : {1, 3}) {
    const std::string to = folder_ / ("to-" + std::to_string(files));
    expect(ckpt({"reshard", step(6), to, "--files", std::to_string(files)}), 0, "wrote ");
    EXPECT_EQ(read_manifest(to).files.size(), static_cast<std::size_t>(files));
    EXPECT_TRUE(saved_in(to) == saved_in(step(6)));
    expect(ckpt({"diff", step(6), to}), 0, "all tensors are the same\n");
    expect(ckpt({"reshard", step(6), to}), 2, "is there already; remove it or choose another name");
  }
  // Its tensors are whole, for any reader of such files.
  const SafetensorsFile file(folder_ / "to-1/rank-00000.safetensors");
  EXPECT_EQ(file.entries().size(), saved_in(step(6)).size());
}

TEST_F(Ckpt, PruneKeepsWhatItIsTold) {
  expect(ckpt({"prune", out_}), 2, "prun ckpt prune RUN needs --keep N: newest that stay; usage: ");
  expect(ckpt({"prune", out_, "--keep", "1", "--keep-every", "4"}), 0, "removed " + step(2) + "\n");
  EXPECT_TRUE(fs::exists(step(4)));
  expect(ckpt({"prune", out_, "--keep", "1"}), 0, "removed " + step(4) + "\n");
  EXPECT_TRUE(fs::exists(step(6)));
  expect(ckpt({"prune", folder_.path(), "--keep", "1"}), 2, "is not the folder of a run");
}

TEST_F(Ckpt, PruneLeavesARunThatGoesOnAlone) {
  const std::string live = folder_ / "live";
  const std::string file = folder_.write(
      "live.toml",
      tiny_recipe({"run.steps=100", "run.save_every=1", "run.keep=3", "run.out=" + live}).resolved_toml());
  StartedPrun run({file});
  int refused = 0;
  while (!run.is_over()) {
    if (!fs::exists(live + "/run.id")) continue;
    const Result pruned = ckpt({"prune", live, "--keep", "1"});
    if (pruned.code == 0) continue;  // it is over
    expect(pruned, 2, "is in use by the run 'tiny' (pid ");
    ++refused;
  }
  EXPECT_EQ(run.wait(), 0);
  EXPECT_GT(refused, 0);
  expect(ckpt({"verify", live}), 0, "step-00000100: good");
  EXPECT_EQ(ckpt({"prune", live, "--keep", "1"}).code, 0);
  expect(ckpt({"verify", live}), 0, "1 checkpoints read");
}

TEST_F(Ckpt, ARunGetsOverFoldersThatSomebodyElseRemoves) {
  const std::string live = folder_ / "live";
  const std::string file = folder_.write(
      "live.toml",
      tiny_recipe({"run.steps=60", "run.save_every=1", "run.keep=2", "run.out=" + live}).resolved_toml());
  StartedPrun run({file});
  std::error_code ignored;
  while (!run.is_over())
    for (int step = 1; step < 60; ++step) {
      char name[32];
      std::snprintf(name, sizeof name, "/step-%08d", step);
      char next[32];
      std::snprintf(next, sizeof next, "/step-%08d", step + 1);
      if (fs::exists(live + next, ignored)) fs::remove_all(live + name, ignored);
    }
  EXPECT_EQ(run.wait(), 0);
  expect(ckpt({"verify", live + "/step-00000060"}), 0, "good");
}

TEST_F(Ckpt, TwoPrunesAtOnceBothEndWell) {
  for (int round = 0; round < 5; ++round) {
    const std::string copy = folder_ / ("copy-" + std::to_string(round));
    fs::copy(out_, copy, fs::copy_options::recursive);
    StartedPrun first({"ckpt", "prune", copy, "--keep", "1"}), second({"ckpt", "prune", copy, "--keep", "1"});
    EXPECT_EQ(first.wait(), 0);
    EXPECT_EQ(second.wait(), 0);
    expect(ckpt({"verify", copy}), 0, "1 checkpoints read");
  }
}

class PruneInTheMiddle : public Ckpt {
 protected:
  // A copy of the run whose first checkpoint takes a while to remove.
  std::string slow_copy(const std::string& name) const {
    const std::string copy = folder_ / name;
    fs::copy(out_, copy, fs::copy_options::recursive);
    for (int i = 0; i < 10000; ++i) std::ofstream(copy + "/step-00000002/" + std::to_string(i));
    return copy;
  }
  static int end_prune(const std::string& run, int signal) {
    StartedPrun prune({"ckpt", "prune", run, "--keep", "1"});
    while (fs::exists(run + "/step-00000002") && !prune.is_over()) continue;
    prune.send(signal);
    return prune.wait();
  }
  static std::ptrdiff_t hidden(const std::string& run) {
    return std::count_if(fs::directory_iterator(run), fs::directory_iterator(),
                         [](const auto& entry) { return entry.path().filename().string().starts_with("."); });
  }
};

TEST_F(PruneInTheMiddle, WhatAKilledOneLeftGoesWithTheNext) {
  const std::string run = slow_copy("killed");
  ASSERT_EQ(end_prune(run, SIGKILL), -SIGKILL);
  ASSERT_EQ(hidden(run), 1);
  expect(ckpt({"prune", run, "--keep", "1"}), 0, "");
  EXPECT_EQ(hidden(run), 0);
  EXPECT_FALSE(fs::exists(run + "/run.lock"));
  expect(ckpt({"verify", run}), 0, "1 checkpoints read");
}

TEST_F(PruneInTheMiddle, ASignalLeavesNothing) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const std::string run = slow_copy("signal-" + std::to_string(signal));
    EXPECT_EQ(end_prune(run, signal), 128 + signal);
    EXPECT_EQ(hidden(run), 0);
    EXPECT_FALSE(fs::exists(run + "/run.lock"));
    expect(ckpt({"verify", run}), 0, "1 checkpoints read");
  }
}

TEST_F(Ckpt, VerifyMissesWhatIsGone) {
  fs::rename(step(6) + "/manifest.json", folder_ / "manifest.json");
  expect(ckpt({"verify", out_}), 2, "step-00000006: damaged: ");
  expect(ckpt({"verify", out_}), 2, "step-00000004: good");
  expect(ckpt({"ls", out_}), 0, "step-00000006 cannot be used: ");
  fs::rename(folder_ / "manifest.json", step(6) + "/manifest.json");
  fs::rename(step(6), folder_ / "elsewhere");
  expect(ckpt({"verify", out_}), 2, "latest: damaged: ");
  expect(ckpt({"verify", folder_ / "nowhere"}), 2, "is not there");
}

TEST_F(Ckpt, WithoutLatestTheNewestIsUsedAndSaid) {
  fs::remove(out_ + "/latest");
  const std::string said = "has no `latest`, as where a run is killed in its first save; " + step(6);
  expect(ckpt({"show", out_}), 0, said);
  expect(ckpt({"ls", out_}), 0, said);
  expect(ckpt({"diff", out_, step(6)}), 0, said);
  expect(ckpt({"reshard", out_, folder_ / "to"}), 0, said);
  expect(prun({"export", out_, "--out", folder_ / "exported"}), 0, said);
  expect(prun({"eval", out_, "--set", "data.validation=0.5"}), 0, said);
  expect(prun({"generate", out_, "--tokens", "1", "--max-tokens", "1"}), 0, said);
  const std::string recipe = folder_ / "ckpt.toml";
  expect(prun({recipe, "--set", "run.fresh=false"}), 2, "go on with it by --set run.resume=" + out_);
  expect(prun({recipe, "--set", "run.steps=7", "--set", "run.resume=" + out_}), 0, "");
  EXPECT_NE(read_file(out_ + "/log.jsonl").find(said), std::string::npos);
}

TEST_F(Ckpt, WrongUseIsToldTheUsage) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{}, {"merge", "a"}})
    expect(ckpt(words), 2, "usage: prun ckpt ls RUN [--json] | prun ckpt show CKPT");
  expect(ckpt({"ls"}), 2, "usage: prun ckpt ls RUN [--json]\n");
  expect(ckpt({"show", "a", "b"}), 2, "usage: prun ckpt show CKPT [--recipe] [--json]\n");
}

}  // namespace
}  // namespace prun::test
