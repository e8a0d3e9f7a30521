// What somebody reads who mistook something, and what it makes them type next.
#include <gtest/gtest.h>

#include <fstream>

#include "base/json.hpp"
#include "binary.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* good = R"([run]
name = "first"
steps = 2

[model]
plugin = "llama"
layers = 1
hidden = 32
heads = 4
ffn = 64
seq = 32
vocab = 256

[data]
plugin = "text"
path = "data"

[batch]
global = 8
micro = 2

[optimizer]
plugin = "adamw"
lr = 1e-3

[device]
plugin = "cpu"
threads = 1

[mesh]
dp = 2

[[strategy]]
plugin = "data"
axis = "dp"
)";

class Messages : public testing::Test {
 protected:
  Messages() {
    fs::create_directories(folder_ / "data");
    std::ofstream(folder_ / "data" / "text.txt") << std::string(4096, 'x') << "\n";
  }

  // The recipe, changed.
  void write(const std::string& from = "", const std::string& to = "", const std::string& name = "r.toml") {
    std::string text = good;
    if (!from.empty()) text.replace(text.find(from), from.size(), to);
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  Result type(const std::string& line) { return shell("cd " + folder_.string() + "; $PRUN " + line); }
  // What check says of the recipe, changed.
  std::string said(const std::string& from, const std::string& to) {
    write(from, to);
    const Result result = type("check r.toml");
    EXPECT_EQ(result.code, 2) << result.out;
    return result.out;
  }

  const fs::path folder_ = temporary_folder() / testing::UnitTest::GetInstance()->current_test_info()->name();
};

constexpr auto npos = std::string::npos;

TEST_F(Messages, NamesThatOthersUseAreToldOurs) {
  EXPECT_EQ(said("plugin = \"data\"", "plugin = \"ddp\""),
            "prun: r.toml:34:10: error: there is no strategy plugin 'ddp'; it is called 'data' here\n"
            "  34 | plugin = \"ddp\"\n"
            "     |          ^~~~~\n");
  EXPECT_NE(said("plugin = \"data\"", "plugin = \"fsdp\"").find("it is called 'zero' here"), npos);
  EXPECT_NE(said("plugin = \"adamw\"", "plugin = \"adam\"").find("it is called 'adamw' here"), npos);
  EXPECT_NE(said("plugin = \"text\"", "plugin = \"bytes\"").find("it is called 'text' here"), npos);
  EXPECT_NE(said("plugin = \"data\"", "plugin = \"swarm\"").find("'swarm'; there are "), npos);
}

TEST_F(Messages, ZeroAloneIsToldWhatToAdd) {
  const std::string text = said("plugin = \"data\"", "plugin = \"zero\"\nstage = 2");
  EXPECT_NE(text.find("r.toml:36:1: error: strategy 'zero' shares state out over the axis 'dp'"), npos)
      << text;
  EXPECT_NE(text.find("add [[strategy]] plugin = \"data\", axis = \"dp\", which splits the batch over it"),
            npos)
      << text;
}

TEST_F(Messages, WhatPluginsStateStandsAtItsPlace) {
  EXPECT_EQ(said("hidden = 32", "hidden = 33"),
            "prun: r.toml:8:1: error: model plugin 'llama': model.hidden = 33 is not a multiple of "
            "model.heads = 4; set model.head_dim\n"
            "  8 | hidden = 33\n"
            "    | ^~~~~~\n");
  const std::string host = said("[mesh]", "[[strategy]]\nplugin = \"offload\"\noptimizer = \"cpu\"\n[mesh]");
  EXPECT_NE(host.find("r.toml:32:1: error: strategy plugin 'offload': optimizer is \"cpu\", which is called "
                      "\"host\" here;"),
            npos)
      << host;
  EXPECT_NE(host.find("  32 | optimizer = \"cpu\"\n     | ^~~~~~~~~\n"), npos) << host;
}

TEST_F(Messages, APathThatIsNotThereSaysWherePathsStart) {
  write("path = \"data\"", "path = \"texts\"", "sub/r.toml");
  fs::create_directories(folder_ / "sub" / "texts");
  const std::string text = type("check sub/r.toml").out;
  EXPECT_NE(text.find("sub/r.toml:16:1: error: data plugin 'text': text path 'texts' does not exist"), npos)
      << text;
  EXPECT_NE(text.find("paths start from the folder that prun is started in, " +
                      fs::canonical(folder_).string() + "; 'sub/texts' is there\n"),
            npos)
      << text;
  write();
  for (const char* key : {"model.init", "run.resume"}) {
    const Result result = type("check r.toml --set " + std::string(key) + "=nowhere");
    EXPECT_EQ(result.code, 2);
    EXPECT_NE(
        result.out.find("prun: --set " + std::string(key) + "=nowhere: error: nowhere is not there; give "),
        npos)
        << result.out;
    EXPECT_NE(result.out.find("\n   |       ^~~~~~~~~~\n"), npos) << result.out;
  }
}

TEST_F(Messages, CommandsOfOthersAndSlipsOfThemAreToldOurs) {
  write();
  const std::pair<const char*, const char*> cases[] = {
      {"trian r.toml", "there is no command 'trian'; prun RECIPE trains, see prun --help"},
      {"trian", "there is no command 'trian'; prun RECIPE trains, see prun --help"},
      {"train r.toml", "there is no command 'train'; prun RECIPE trains, see prun --help"},
      {"prun r.toml", "there is no command 'prun'; prun stands once in the line"},
      {"validate r.toml", "prun check RECIPE checks a recipe"},
      {"chek r.toml", "did you mean 'check'?"},
      {"frobnicate", "there is no command 'frobnicate', and no such file; see prun --help"},
      {"nowhere.toml", "cannot read recipe 'nowhere.toml': there is no such file"}};
  for (const auto& [line, sentence] : cases) {
    const Result result = type(line);
    EXPECT_EQ(result.code, 2) << line;
    EXPECT_NE(result.out.find(sentence), npos) << line << "\n" << result.out;
  }
}

// What a first day met.
TEST_F(Messages, SlipsOfTheCommandLineAreToldAsTheyAreTyped) {
  write();
  const std::pair<const char*, const char*> cases[] = {
      {"r.toml --set run.steps 3", "--set takes KEY=VALUE in one word: --set run.steps=3"},
      {"r.toml --resume",
       "unknown option --resume; it is a key of recipes: --set run.resume=VALUE; see prun"},
      {"r.toml --save-every 3", "it is a key of recipes: --set run.save_every=VALUE"},
      {"explain lr", "no plugin is called 'lr'; a key is: prun explain optimizer.lr"},
      {"explain learning_rate", "a key is: prun explain optimizer.lr"},
      {"check r.toml --set strategy.2.plugin=zero", "items count from 0, and the next one would be 1"},
      {"check r.toml --set precision=bf16", "expected table, got 'bf16'; it is a choice of 'compute'"},
      {"check r.toml --set optimizer.schedule=cosine", "got 'cosine'; it is a choice of 'schedule.kind'"},
      {"check r.toml --set batch.size=3", "unknown key 'size' in [batch]; did you mean 'global'?"},
      {"check r.toml --set batch.accumulate=3", "accumulation follows from batch.global, batch.micro"},
      {"check r.toml --set batch.queue=3", "unknown key 'queue' in [batch]; there are global, micro"},
      {"check r.toml --set mesh.tp=2", "add one, such as [[strategy]] plugin = \"tensor\", axis = \"tp\""},
      {"check r.toml --set mesh.x=2", "add one, such as [[strategy]] plugin = \"data\", axis = \"x\""}};
  for (const auto& [line, sentence] : cases) {
    const Result result = type(line);
    EXPECT_EQ(result.code, 2) << line;
    EXPECT_NE(result.out.find(sentence), npos) << line << "\n" << result.out;
  }
}

TEST_F(Messages, AVocabularyThatIsTooSmallIsShownWhereItStands) {
  EXPECT_EQ(said("vocab = 256", "vocab = 100"),
            "prun: r.toml:12:1: error: data: tokens go up to 255, model.vocab = 100 is too small; set "
            "model.vocab to at least 256\n"
            "  12 | vocab = 100\n"
            "     | ^~~~~\n");
}

TEST_F(Messages, ARunThatIsOverSaysWhatGoesOn) {
  write();
  ASSERT_EQ(type("r.toml --set mesh.dp=1").code, 0);
  const Result stays = type("r.toml --set mesh.dp=1 --set run.save_every=2 --set run.fresh=true");
  ASSERT_EQ(stays.code, 0) << stays.out;
  const Result again = type("r.toml --set mesh.dp=1 --set run.resume=runs/first");
  EXPECT_EQ(again.code, 0) << again.out;
  EXPECT_NE(again.out.find("done: no step ran, since 2 are behind it; a larger run.steps goes on\n"), npos)
      << again.out;
  EXPECT_NE(type("ckpt ls first").out.find("did you mean 'runs/first'?"), npos);
}

// Steps overlap, so that the host may see a step take less time than the device took for it.
TEST_F(Messages, CommunicationIsNoLongerThanItsStep) {
  write("steps = 2", "steps = 40");
  const Result run = type("r.toml");
  ASSERT_EQ(run.code, 0) << run.out;
  std::ifstream log(folder_ / "runs/first/log.jsonl");
  int measured = 0;
  for (std::string line; std::getline(log, line);) {
    const JsonValue record = parse_json(line, "log");
    const JsonValue* const exposed = record.find("exposed_seconds");
    if (record.at("type").as_string() != "step" || !exposed || exposed->is_null()) continue;
    EXPECT_LE(exposed->as_double(), record.at("seconds").as_double()) << line;
    ++measured;
  }
  EXPECT_GT(measured, 0);
}

TEST_F(Messages, MoreThreadsThanCoresAreToldAndNotRefused) {
  write("threads = 1", "threads = 1000");
  for (const char* line :
       {"check r.toml", "r.toml --set run.fresh=true --set mesh.dp=1 --set device.threads=500"}) {
    const Result result = type(line);
    EXPECT_EQ(result.code, 0) << result.out;
    EXPECT_NE(result.out.find("threads share "), npos) << result.out;
  }
  EXPECT_EQ(type("check r.toml --set mesh.dp=1 --set device.threads=1").out.find("share"), npos);
}

// Whatever a recipe says of observers.
TEST_F(Messages, EveryRunHasTheLogThatCommandsReadUnlessItIsTurnedOff) {
  write();
  ASSERT_EQ(type("r.toml --set mesh.dp=1").code, 0);
  for (const char* line : {"report runs/first", "runs", "watch runs/first", "diff runs/first runs/first"}) {
    const Result result = type(line);
    EXPECT_EQ(result.code, 0) << line << "\n" << result.out;
  }
  EXPECT_NE(type("runs").out.find("first"), npos);
  ASSERT_EQ(type("r.toml --set run.name=quiet --set run.log=false --set mesh.dp=1").code, 0);
  EXPECT_FALSE(fs::exists(folder_ / "runs/quiet/log.jsonl"));
  const Result report = type("report runs/quiet");
  EXPECT_EQ(report.code, 2);
  EXPECT_NE(report.out.find("unless its recipe says run.log = false"), npos) << report.out;
}

TEST_F(Messages, ALogThatTheRecipeNamesIsTheOnlyOne) {
  write("[mesh]", "[[observer]]\nplugin = \"jsonl\"\npath = \"mine.jsonl\"\n[mesh]");
  ASSERT_EQ(type("r.toml --set mesh.dp=1").code, 0);
  EXPECT_TRUE(fs::exists(folder_ / "mine.jsonl"));
  EXPECT_FALSE(fs::exists(folder_ / "runs/first/log.jsonl"));
}

}  // namespace
}  // namespace prun::test
