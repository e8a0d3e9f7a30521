// prun init: whatever is asked for, what it writes is accepted.
#include <gtest/gtest.h>

#include <fstream>

#include "binary.hpp"
#include "support/temp_folder.hpp"
#include "support/token_file.hpp"

namespace prun::test {
namespace {

namespace fs = std::filesystem;

class Init : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream text(folder_ / "text.txt");
    for (int line = 0; line < 20000; ++line)
      text << "the quick brown fox jumps over the lazy dog " << line << "\n";
    std::vector<std::int32_t> tokens(600000);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * 7 % 50000);
    write_tokens(folder_ / "tokens.bin", tokens);
    for (std::int32_t& token : tokens) token %= 64;
    write_tokens(folder_ / "few.bin", tokens);
  }

  // Of prun with these words, in the folder.
  Result in_folder(const std::string& words) { return shell("cd " + folder_.path() + " && $PRUN " + words); }

  TempFolder folder_;
};

TEST_F(Init, EveryCombinationIsAcceptedByCheckAndPlan) {
  const std::string config = PRUN_TEST_FIXTURES "/hugging_face/gpt2";
  int number = 0;
  for (const std::string& model : {std::string("gpt"), std::string("llama"), config})
    for (const std::string& data : model == config ? std::vector<std::string>{"few.bin"}
                                                   : std::vector<std::string>{"text.txt", "tokens.bin"})
      for (const char* goal : {"quick", "train"}) {
        const std::string out = "r" + std::to_string(number++) + ".toml";
        const Result made =
            in_folder("init --model " + model + " --data " + data + " --goal " + goal + " --out " + out);
        ASSERT_EQ(made.code, 0) << model << data << goal << made.out;
        EXPECT_NE(made.out.find("prun check " + out), std::string::npos) << made.out;
        const Result checked = in_folder("check " + out), planned = in_folder("plan " + out);
        EXPECT_EQ(checked.code, 0) << model << data << goal << checked.out;
        EXPECT_EQ(planned.code, 0) << planned.out;
      }
}

// What there is to train on, what is said of it, and nothing is written.
TEST_F(Init, AFolderWithoutTextIsRefusedInOneSentence) {
  constexpr const char* what_to_do =
      "; name a text file, a folder of them, or tokens (.bin, .idx) with --data\n";
  for (const auto& [words, said] :
       {std::pair("mkdir void && $PRUN init --data void", "cannot train on --data: void: holds no text file"),
        {"mkdir void2 && cd void2 && $PRUN init --data .",
         "cannot train on this folder: .: holds no text file"},
        {"mkdir zeros && cd zeros && printf 'a\\0b' > one && $PRUN init",
         "cannot train on this folder: .: holds no text file"},
        {"mkdir few && cd few && echo few > one && $PRUN init",
         "cannot train on this folder: .: 4 bytes are too few for one sample of 256 tokens and the byte "
         "after "
         "them"}}) {
    const Result made = shell("cd " + folder_.path() + " && " + words);
    EXPECT_EQ(made.code, 2);
    EXPECT_EQ(made.out, std::string("prun: ") + said + what_to_do);
  }
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder_.path()))
    EXPECT_NE(entry.path().extension(), ".toml") << entry.path();
}

// With a text of prun's own; what is hidden, such as the folder of git, is none of the user's.
TEST_F(Init, AnEmptyFolderGetsARecipeThatTrains) {
  const Result made = shell("cd " + folder_.path() +
                            " && mkdir -p new/.git && cd new && touch .git/HEAD && $PRUN init && $PRUN check "
                            "recipe.toml && $PRUN recipe.toml --set run.steps=1");
  EXPECT_EQ(made.code, 0) << made.out;
  EXPECT_EQ(made.out.rfind("this folder is empty: wrote sample.txt, sentences of prun's documents to train "
                           "on; --data names a text of yours\nwrote recipe.toml\n",
                           0),
            0u)
      << made.out;
  EXPECT_NE(read_file(folder_ / "new/recipe.toml").find("path = \"sample.txt\""), std::string::npos);
}

TEST_F(Init, NoTextIsLeftWhereNoRecipeIsWritten) {
  const Result made =
      shell("cd " + folder_.path() + " && mkdir bare && cd bare && $PRUN init --model nowhere.json");
  EXPECT_NE(made.code, 0);
  EXPECT_TRUE(fs::is_empty(folder_ / "bare")) << made.out;
}

TEST_F(Init, SharesTheBatchOutOverAsManyRanksAsAreAskedFor) {
  const Result made = in_folder("init --data text.txt --ranks 2");
  ASSERT_EQ(made.code, 0) << made.out;
  const std::string recipe = read_file(folder_ / "recipe.toml");
  EXPECT_NE(recipe.find("\ndp = 2 "), std::string::npos) << recipe;
  const Result checked = in_folder("check recipe.toml");
  EXPECT_EQ(checked.code, 0) << checked.out;
  EXPECT_NE(checked.out.find("x 2 ranks"), std::string::npos) << checked.out;
  const Result none = in_folder("init --data text.txt --out other.toml --ranks none");
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.out.find("--ranks takes a count, not 'none'"), std::string::npos) << none.out;
}

// A folder of the data may be called anything.
TEST_F(Init, WhatDataAreCalledStaysInItsText) {
  const std::string name =
      "x\n[[observer]]\nplugin = \"notify\"\ncommand = \"touch EXECUTED\"\n#\u0085\u202e";
  folder_.write(name + "/text.txt", std::string(20000, 'a'));
  const std::string out = folder_ / "recipe.toml";
  const Result made = prun({"init", "--data", folder_ / name, "--out", out});
  ASSERT_EQ(made.code, 0) << made.out;
  const std::string recipe = read_file(out);
  EXPECT_EQ(recipe.find("notify\"\n"), std::string::npos) << recipe;
  EXPECT_EQ(prun({"check", out}).code, 0);
  EXPECT_NE(recipe.find("x\\n[[observer]]\\nplugin = \\\"notify\\\""), std::string::npos) << recipe;
}

TEST_F(Init, EveryLineSaysWhatItMeans) {
  ASSERT_EQ(in_folder("init --data text.txt --goal train").code, 0);
  std::ifstream file(folder_ / "recipe.toml");
  int keys = 0;
  for (std::string line; std::getline(file, line); keys += line.find(" = ") != std::string::npos)
    EXPECT_TRUE(line.find(" = ") == std::string::npos || line.find(" # ") != std::string::npos) << line;
  EXPECT_GT(keys, 20);
}

TEST_F(Init, OverwritesNothing) {
  std::ofstream(folder_ / "recipe.toml") << "mine";
  const Result result = in_folder("init --data text.txt");
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.out.find("recipe.toml is there already; name another with --out"), std::string::npos)
      << result.out;
  std::string text;
  std::getline(std::ifstream(folder_ / "recipe.toml"), text);
  EXPECT_EQ(text, "mine");
}

TEST_F(Init, SaysWhatItCannotUse) {
  for (const auto& [words, said] :
       {std::pair("--data nowhere", "--data: there is no 'nowhere'"),
        {"--data text.txt --goal fast", "--goal takes quick or train, not 'fast'"},
        {"--data text.txt --model nowhere.json", "nowhere.json"},
        {"--data text.txt --out nowhere/recipe.toml", "nowhere/recipe.toml"}}) {
    const Result result = in_folder(std::string("init ") + words);
    EXPECT_NE(result.code, 0);
    EXPECT_NE(result.out.find(said), std::string::npos) << result.out;
    EXPECT_FALSE(fs::exists(folder_ / "recipe.toml"));
  }
}

TEST_F(Init, AsksOnATerminal) {
  if (shell("command -v script").code != 0) GTEST_SKIP() << "no script(1) is here";
  const Result asked = shell("cd " + folder_.path() +
                             " && printf 'llama\\ntext.txt\\n\\n' | script -qec \"$PRUN init\" /dev/null");
  EXPECT_NE(asked.out.find("Which model"), std::string::npos) << asked.out;
  std::ifstream file(folder_ / "recipe.toml");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_NE(text.find("plugin = \"llama\""), std::string::npos) << asked.out;
  EXPECT_NE(text.find("steps = 150"), std::string::npos);
}

}  // namespace
}  // namespace prun::test
