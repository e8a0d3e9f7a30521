// prun eval and prun generate: the same loss and the same text of a checkpoint, in whichever layout.
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "base/safetensors.hpp"
#include "binary.hpp"
#include "support/assembly_fixture.hpp"
#include "support/temp_folder.hpp"

namespace prun::test {
namespace {

void flip_byte(const std::string& file, std::uint64_t at) {
  std::fstream open(file, std::ios::in | std::ios::out | std::ios::binary);
  open.seekg(static_cast<std::streamoff>(at));
  const int before = open.get();
  open.seekp(static_cast<std::streamoff>(at));
  open.put(static_cast<char>(before ^ 0x10));
}

// A command compares what it reads with its checksums; what it does not read, another finds.
TEST(DamagedCheckpoint, IsFoundByWhatReadsTheDamage) {
  const TempFolder folder;
  const std::string out = folder / "run", step = out + "/step-00000002";
  const std::string recipe = folder.write(
      "run.toml", tiny_recipe({"run.steps=2", "run.save_every=2", "run.out=" + out, "data.validation=0.1"},
                              "[[strategy]]\nplugin = 'average'\n")
                      .resolved_toml());
  ASSERT_EQ(prun({recipe}).code, 0);
  int number = 0;
  const auto code_of = [&](std::vector<std::string> words, bool writes) {
    if (writes) words.insert(words.end(), {"--out", folder / ("out" + std::to_string(++number))});
    return prun(words).code;
  };
  const std::string file = step + "/rank-00000.safetensors";
  std::set<std::string> seen;
  const std::vector<SafetensorsEntry> entries = SafetensorsFile(file).entries();
  for (const SafetensorsEntry& entry : entries) {
    const std::size_t dot = entry.name.rfind('.');
    const std::string kind = entry.name.substr(dot + 1) == "weight" ? "weights" : entry.name.substr(dot + 1);
    if (!seen.insert(kind).second) continue;
    flip_byte(file, entry.begin + 1);
    const int weights = kind == "weights" || kind == "master" ? 2 : 0, average = kind == "average" ? 2 : 0;
    EXPECT_EQ(code_of({"ckpt", "verify", step}, false), 2) << entry.name;
    EXPECT_EQ(code_of({recipe, "--set", "run.resume=" + step, "--set", "run.steps=3"}, false), 2)
        << entry.name;
    if (kind == "weights" || kind == "average" || kind == "m" || kind == "v") {
      EXPECT_EQ(code_of({"eval", step}, false), weights) << entry.name;
      EXPECT_EQ(code_of({"eval", step, "--average"}, false), average) << entry.name;
      EXPECT_EQ(code_of({"export", step}, true), weights) << entry.name;
      EXPECT_EQ(code_of({"export", step, "--average"}, true), average) << entry.name;
      EXPECT_EQ(code_of({recipe, "--set", "model.init=" + step, "--set", "run.steps=1", "--set",
                         "run.out=" + (folder / ("init" + std::to_string(++number)))},
                        false),
                weights)
          << entry.name;
    }
    flip_byte(file, entry.begin + 1);
  }
  for (const char* kind : {"weights", "average", "m", "v"}) EXPECT_TRUE(seen.contains(kind)) << kind;
}

// Trained in two ranks with ZeRO, evaluated at the end.
class OfACheckpoint : public testing::Test {
 protected:
  OfACheckpoint() {
    const std::string file = folder_.write(
        "run.toml",
        tiny_recipe(
            {"run.steps=6", "run.save_every=6", "run.out=" + out_, "batch.micro=2", "eval.every=6",
             "eval.batches=3", "data.validation=0.1", "precision.compute=fp64", "precision.state=fp64"},
            "[mesh]\ndp = 2\npp = 1\ntp = 1\n[[strategy]]\nplugin = 'data'\naxis = 'dp'\n"
            "[[strategy]]\nplugin = 'tensor'\naxis = 'tp'\n[[strategy]]\nplugin = 'pipeline'\naxis = 'pp'\n"
            "schedule = 'interleaved'\nchunks = 2\n[[strategy]]\nplugin = 'zero'\nstage = 3\n")
            .resolved_toml());
    const Result run = prun({file});
    EXPECT_EQ(run.code, 0) << run.out;
  }

  // What a mesh adds to a command.
  static std::vector<std::string> mesh(int dp, int pp, int tp) {
    return {"--set", "mesh.dp=" + std::to_string(dp), "--set", "mesh.pp=" + std::to_string(pp),
            "--set", "mesh.tp=" + std::to_string(tp), "--set", "batch.micro=1"};
  }
  static std::string said(std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    const Result result = prun(words);
    EXPECT_EQ(result.code, 0) << result.out;
    return result.out;
  }
  static double loss_in(const std::string& text) {
    const std::string key = "\"eval_loss\":";
    const std::size_t at = text.find(key);
    EXPECT_NE(at, std::string::npos) << text;
    return at == std::string::npos ? 0 : std::stod(text.substr(at + key.size()));
  }

  const TempFolder folder_;
  const std::string out_ = folder_ / "run";
};

TEST_F(OfACheckpoint, EvalFindsTheLossThatTrainingFoundInAnyLayout) {
  const double trained = loss_in(shell("grep eval_loss " + out_ + "/log.jsonl").out);
  for (const auto& more : {mesh(1, 1, 1), mesh(2, 1, 1), mesh(1, 2, 1), mesh(1, 1, 2), mesh(2, 1, 2)})
    EXPECT_NEAR(loss_in(said({"eval", out_, "--json"}, more)), trained, 1e-9)
        << more[1] << more[3] << more[5];
  EXPECT_NE(said({"eval", out_ + "/step-00000006", "--batches", "1"}, mesh(1, 1, 1)).find(" over 64 targets"),
            std::string::npos);
}

// Options of the plugin that the run had are not asked of the one that takes its place.
TEST_F(OfACheckpoint, AnotherPluginIsNotAskedForOptionsOfTheOneBefore) {
  const std::string text = said({"eval", out_, "--json"}, mesh(1, 1, 1));
  EXPECT_EQ(said({"eval", out_, "--json", "--set", "optimizer.plugin = sgd"}, mesh(1, 1, 1)), text);
  const Result same =
      prun({"eval", out_, "--set", "optimizer.plugin=adamw", "--set", "optimizer.momentum=1"});
  EXPECT_EQ(same.code, 2) << same.out;
  EXPECT_NE(same.out.find("unknown key 'momentum'"), std::string::npos) << same.out;
}

// data.validation among it: without that there would be nothing to evaluate on, whatever the plugin reads.
TEST_F(OfACheckpoint, WhatTheCoreReadsOfASectionStaysWhicheverPluginItNames) {
  const std::string text = folder_.write("text.txt", std::string(4000, 'a'));
  const Result other = prun({"eval", out_, "--set", "data.plugin=text", "--set", "data.path=" + text});
  EXPECT_EQ(other.code, 2) << other.out;
  EXPECT_NE(other.out.find("tokens go up to 255, model.vocab = 64 is too small"), std::string::npos)
      << other.out;
  EXPECT_EQ(said({"eval", out_, "--json", "--set", "data.plugin='tokens'"}, mesh(1, 1, 1)),
            said({"eval", out_, "--json"}, mesh(1, 1, 1)));
}

TEST_F(OfACheckpoint, GenerateGivesTheSameTextInAnyLayout) {
  for (const std::vector<std::string>& how :
       {std::vector<std::string>{}, {"--temperature", "1.3", "--top-p", "0.9", "--seed", "5"}}) {
    std::vector<std::string> words = {"generate", out_, "--tokens", "5,17,60", "--max-tokens", "20"};
    words.insert(words.end(), how.begin(), how.end());
    const std::string one = said(words, mesh(1, 1, 1));
    EXPECT_EQ(std::count(one.begin(), one.end(), ','), 19) << one;
    for (const auto& more : {mesh(2, 1, 1), mesh(1, 2, 1), mesh(1, 1, 2)})
      EXPECT_EQ(said(words, more), one) << more[1] << more[3] << more[5];
  }
}

// The sequence has 16 positions: three tokens and 13 others fit, as position by position, 20 others do not.
TEST_F(OfACheckpoint, GenerateGivesTheSameTextWhetherItFitsOrNot) {
  const auto text = [&](const std::string& most, const std::vector<std::string>& mesh) {
    return said({"generate", out_, "--tokens", "5,17,60", "--max-tokens", most}, mesh);
  };
  const std::string longer = text("20", mesh(1, 1, 1));
  for (const auto& more : {mesh(1, 1, 1), mesh(2, 1, 1), mesh(1, 2, 1), mesh(1, 1, 2)}) {
    std::string shorter = text("14", more);
    shorter.back() = ',';
    EXPECT_EQ(longer.substr(0, shorter.size()), shorter) << more[1] << more[3] << more[5];
  }
}

TEST_F(OfACheckpoint, WhatCannotBeDoneIsSaid) {
  const auto expect = [](const Result& result, const std::string& part) {
    EXPECT_EQ(result.code, 2) << result.out;
    EXPECT_NE(result.out.find(part), std::string::npos) << result.out;
  };
  expect(prun({"generate", out_, "some text"}), "there is no tokenizer.json beside the checkpoint");
  expect(prun({"generate", out_, "--tokens", "1,x"}), "--tokens takes a number from 0 to");
  expect(prun({"generate", out_, "--tokens", "1", "--top-p", "2"}), "--top-p takes a number from 0 to 1");
  expect(prun({"eval", folder_.path()}), "holds no checkpoint");
  expect(prun({"eval", out_, "--set", "data.validation=0"}),
         "cannot validate: the recipe names no data for it");
}

// Not by its plugin's name but by what its note says.
TEST(Generate, TakesTextWhereAThirdPartysPluginReadsBytes) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the quick brown fox ";
  const std::string path = folder.write("fox.txt", text), out = folder / "run";
  const std::string file =
      folder.write("run.toml", tiny_recipe({"run.steps=2", "run.save_every=2", "run.out=" + out,
                                            "model.vocab=256", "data.plugin=octets", "data.path=" + path})
                                   .resolved_toml());
  const std::vector<std::string> where = {"--plugin-path", PRUN_TEST_PLUGINS "/test"};
  const Result run = prun({file, where[0], where[1]});
  ASSERT_EQ(run.code, 0) << run.out;
  const Result said = prun({"generate", out, "the quick", "--max-tokens", "3", where[0], where[1]});
  EXPECT_EQ(said.code, 0) << said.out;
}

}  // namespace
}  // namespace prun::test
