// Where --out points: an older output of the same kind gives way, a run's own files do not.
#include <gtest/gtest.h>

#include <filesystem>

#include "binary.hpp"
#include "support/assembly_fixture.hpp"
#include "support/temp_folder.hpp"

namespace prun::test {
namespace {

namespace fs = std::filesystem;

class Output : public testing::Test {
 protected:
  Output() {
    recipe_ = folder_.write("r.toml", tiny_recipe({"run.steps=2", "run.save_every=2", "run.out=" + run_,
                                                   "observer.0.plugin=jsonl"})
                                          .resolved_toml());
    const Result result = prun({recipe_});
    EXPECT_EQ(result.code, 0) << result.out;
  }

  // The command writes, writes again over what it wrote, and refuses everything else.
  void keeps_to_its_kind(const std::vector<std::string>& words, const std::string& name) const {
    const auto to = [&](const std::string& file) {
      std::vector<std::string> all = words;
      all.insert(all.end(), {"--out", file});
      return prun(all);
    };
    const std::string own = folder_ / name;
    for (int i = 0; i < 2; ++i) {
      const Result written = to(own);
      EXPECT_EQ(written.code, 0) << written.out;
    }
    const std::string suffix = fs::path(name).extension();
    std::vector<std::string> others = {run_ + "/log.jsonl",
                                       run_ + "/run.id",
                                       run_ + "/latest",
                                       run_ + "/recipe.toml",
                                       run_ + "/step-00000002/manifest.json",
                                       recipe_};
    others.push_back(folder_.write("other" + suffix, "somebody's work\n"));
    for (const std::string& other : others) {
      const std::string before = read_file(other);
      const Result refused = to(other);
      EXPECT_EQ(refused.code, 2) << other << ": " << refused.out;
      EXPECT_EQ(read_file(other), before) << other;
    }
    EXPECT_EQ(to(run_).code, 2);
  }

  const TempFolder folder_;
  const std::string run_ = folder_ / "run";
  std::string recipe_;
};

TEST_F(Output, OfReport) {
  keeps_to_its_kind({"report", run_}, "page.html");
  keeps_to_its_kind({"report", recipe_}, "plan.html");
  const Result said = prun({"report", run_, "--out", run_ + "/log.jsonl"});
  EXPECT_NE(said.out.find(
                "log.jsonl is there already and is not a page of prun report; name another file with --out"),
            std::string::npos)
      << said.out;
}

TEST_F(Output, OfTrace) { keeps_to_its_kind({"trace", recipe_, "--steps", "1"}, "a.trace.json"); }

TEST_F(Output, OfBench) {
  const std::string two = folder_.write(
      "two.toml",
      tiny_recipe({"batch.micro=2", "run.out=" + (folder_ / "bench")}, data_parallel(2)).resolved_toml());
  for (const char* name : {"a.json", "a.csv"})
    keeps_to_its_kind({"bench", "zero", two, "--steps", "3", "--setting", "1"}, name);
}

TEST_F(Output, OfACostTable) { keeps_to_its_kind({"bench", "comm", "--ranks", "2"}, "costs.json"); }

TEST_F(Output, OfConvert) {
  const std::string source =
      folder_.write("ds.json", "{\"train_batch_size\": 4, \"train_micro_batch_size_per_gpu\": 4}");
  keeps_to_its_kind({"convert", source,
                     "--ranks", "1",
                     "--set",   "run.steps=2",
                     "--set",   "model.plugin=gpt",
                     "--set",   "model.layers=1",
                     "--set",   "model.hidden=16",
                     "--set",   "model.heads=2",
                     "--set",   "model.seq=8",
                     "--set",   "model.vocab=64",
                     "--set",   "data.plugin=text",
                     "--set",   "data.path=x",
                     "--set",   "optimizer.lr=1e-3",
                     "--set",   "optimizer.plugin=adamw"},
                    "mine.toml");
}

TEST_F(Output, OfInitExportImportAndReshardTakesNoPlaceAtAll) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"init", "--out", recipe_},
                                                {"export", run_, "--out", run_},
                                                {"export", run_, "--out", recipe_},
                                                {"ckpt", "reshard", run_, run_},
                                                {"ckpt", "reshard", run_, recipe_}}) {
    const std::string before = read_file(recipe_);
    const Result refused = prun(words);
    EXPECT_EQ(refused.code, 2) << refused.out;
    EXPECT_NE(refused.out.find("is there already"), std::string::npos) << refused.out;
    EXPECT_EQ(read_file(recipe_), before);
  }
}

}  // namespace
}  // namespace prun::test
