// Includes: who wins, what is refused.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "recipe/fixture.hpp"

namespace prun::test {
namespace {

namespace fs = std::filesystem;

// A folder of its own, with recipes in it, gone when the test ends.
class Includes : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "prun_include_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    outside_ = pattern;
    folder_ = outside_ / "recipes";
    fs::create_directories(folder_ / "parts");
    write("base.toml", good_recipe);
  }
  void TearDown() override { fs::remove_all(outside_); }

  void write(const std::string& name, const std::string& text) { std::ofstream(folder_ / name) << text; }

  Recipe load(const std::string& name, const std::vector<std::string>& sets = {}) {
    return Recipe::load(folder_ / name, sets, catalog());
  }

  // Without the temporary folder's name.
  std::string complaint(const std::string& name) {
    std::string text;
    try {
      load(name);
    } catch (const Error& error) {
      text = error.what();
    }
    const std::string prefix = folder_.string() + "/";
    for (std::size_t at; (at = text.find(prefix)) != std::string::npos;) text.erase(at, prefix.size());
    return text;
  }

  fs::path outside_, folder_;
};

TEST_F(Includes, TheIncludingFileWinsKeyByKey) {
  write("base.toml", std::string(good_recipe) + "[optimizer.schedule]\nkind = \"cosine\"\nwarmup = 7\n");
  write("a.toml", "include = [\"base.toml\"]\n[optimizer]\nlr = 1.0\nschedule.warmup = 9\n[mesh]\npp = 2\n");
  const Recipe recipe = load("a.toml");
  EXPECT_EQ(recipe.number("optimizer.lr"), 1.0);
  EXPECT_EQ(recipe.text("optimizer.schedule.kind"), "cosine");
  EXPECT_EQ(recipe.integer("optimizer.schedule.warmup"), 9);
  EXPECT_EQ(recipe.integer("mesh.dp"), 4);
  EXPECT_EQ(recipe.integer("mesh.pp"), 2);
  EXPECT_TRUE(recipe.origin("optimizer.lr").ends_with("/a.toml:3"));
  EXPECT_TRUE(recipe.origin("optimizer.schedule.kind").ends_with("/base.toml:25"));
}

TEST_F(Includes, LaterIncludesWin) {
  write("x.toml", "[run]\nseed = 1\nsave_every = 5\n");
  write("y.toml", "[run]\nseed = 2\n");
  write("a.toml", "include = [\"base.toml\", \"x.toml\", \"y.toml\"]\n");
  EXPECT_EQ(load("a.toml").integer("run.seed"), 2);
  EXPECT_EQ(load("a.toml").integer("run.save_every"), 5);
  EXPECT_EQ(load("a.toml", {"run.seed=3"}).integer("run.seed"), 3);
}

TEST_F(Includes, ListsOfTablesAreReplaced) {
  write("base.toml",
        std::string(good_recipe) + "[[strategy]]\nplugin = \"data\"\n[[strategy]]\nplugin = \"data\"\n");
  write("a.toml", "include = [\"base.toml\"]\n[[strategy]]\nplugin = \"zero\"\nstage = 1\n");
  ASSERT_EQ(load("a.toml").strategies().size(), 1u);
  EXPECT_EQ(load("a.toml").strategies()[0].plugin(), "zero");
}

TEST_F(Includes, PathsAreRelativeToTheIncludingFile) {
  write("parts/p.toml", "include = [\"q.toml\", \"../base.toml\"]\n");
  write("parts/q.toml", "[run]\nseed = 5\n");
  write("a.toml", "include = [\"parts/p.toml\"]\n");
  EXPECT_EQ(load("a.toml").integer("run.seed"), 5);
}

TEST_F(Includes, MistakesPointIntoTheIncludedFile) {
  write("parts/p.toml", "[run]\nsteps = \"many\"\n");
  write("a.toml", "include = [\"base.toml\", \"parts/p.toml\"]\n[run]\nsed = 1\n");
  EXPECT_EQ(complaint("a.toml"),
            "a.toml:3:1: error: unknown key 'sed' in [run]; did you mean 'seed'?\n"
            "  3 | sed = 1\n"
            "    | ^~~\n"
            "parts/p.toml:2:9: error: wrong type for 'steps' in [run]: expected int, got string\n"
            "  2 | steps = \"many\"\n"
            "    |         ^~~~~~");
}

TEST_F(Includes, SyntaxErrorsAreShownAlone) {
  write("p.toml", "[run\nseed = 1\n");
  write("a.toml", "include = [\"p.toml\"]\n");
  EXPECT_EQ(complaint("a.toml"),
            "p.toml:1:5: error: TOML syntax, table header: expected ']', saw '\\n'\n"
            "  1 | [run\n"
            "    |     ^");
}

std::string refused(const std::string& entry, const std::string& reason) {
  return "a.toml:1:12: error: " + reason + "\n  1 | include = [" + entry + "]\n    |            ^" +
         std::string(entry.size() - 1, '~');
}

TEST_F(Includes, StayInTheFolder) {
  std::ofstream(outside_ / "secret.toml") << good_recipe;
  fs::create_symlink(outside_ / "secret.toml", folder_ / "link.toml");
  const std::string leaves = " leaves the folder of the recipe; copy the file into it";
  for (const std::string path : {"../secret.toml", "parts/../../secret.toml", "link.toml"}) {
    const std::string entry = "\"" + path + "\"";
    write("a.toml", "include = [" + entry + "]\n");
    EXPECT_EQ(complaint("a.toml"), refused(entry, "include '" + path + "'" + leaves));
  }
  write("a.toml", "include = [\"/etc/passwd\"]\n");
  EXPECT_EQ(complaint("a.toml"),
            refused("\"/etc/passwd\"", "include '/etc/passwd' is not a path relative to this file"));
  write("a.toml", "include = [\"\"]\n");
  EXPECT_EQ(complaint("a.toml"), refused("\"\"", "include '' is not a path relative to this file"));
}

TEST_F(Includes, RefuseWhatIsNoFile) {
  write("a.toml", "include = [\"none.toml\"]\n");
  EXPECT_EQ(complaint("a.toml"),
            refused("\"none.toml\"", "cannot include 'none.toml': there is no such file"));
  write("a.toml", "include = [\"parts\"]\n");
  EXPECT_EQ(complaint("a.toml"), refused("\"parts\"", "cannot include 'parts': it is a folder, not a file"));
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  write("a.toml", "include = [\"pipe\"]\n");
  EXPECT_EQ(complaint("a.toml"), refused("\"pipe\"", "cannot include 'pipe': it is a pipe, not a file"));
}

TEST_F(Includes, RefuseWrongTypes) {
  write("a.toml", "include = \"base.toml\"\n");
  EXPECT_EQ(complaint("a.toml"),
            "a.toml:1:11: error: wrong type for 'include': expected list of strings, got string; "
            "write [\"base.toml\"]\n"
            "  1 | include = \"base.toml\"\n"
            "    |           ^~~~~~~~~~~");
  write("a.toml", "include = [7]\n");
  EXPECT_EQ(complaint("a.toml"), refused("7", "wrong type in 'include': expected string, got int"));
}

TEST_F(Includes, RefuseCircles) {
  write("a.toml", "include = [\"parts/p.toml\"]\n");
  write("parts/p.toml", "include = [\"../a.toml\"]\n");
  EXPECT_EQ(complaint("a.toml"),
            "parts/p.toml:1:12: error: include '../a.toml' goes round in a circle: this file is being read\n"
            "  1 | include = [\"../a.toml\"]\n"
            "    |            ^~~~~~~~~~~");
}

TEST_F(Includes, BoundTheirDepthAndNumber) {
  for (int i = 0; i < 9; ++i)
    write("d" + std::to_string(i) + ".toml", "include = [\"d" + std::to_string(i + 1) + ".toml\"]\n");
  EXPECT_EQ(complaint("d0.toml"),
            "d7.toml:1:12: error: includes nest deeper than 8 files\n"
            "  1 | include = [\"d8.toml\"]\n"
            "    |            ^~~~~~~~~");
  for (int i = 0; i < 6; ++i) {
    const std::string next = "\"w" + std::to_string(i + 1) + ".toml\"";
    write("w" + std::to_string(i) + ".toml", "include = [" + next + ", " + next + "]\n");
  }
  write("w6.toml", "");
  EXPECT_NE(complaint("w0.toml").find("the recipe includes more than 32 files"), std::string::npos);
}

TEST_F(Includes, TheRecipeItselfMustBeReadable) {
  EXPECT_EQ(complaint("no.toml").substr(complaint("no.toml").find("': ")), "': there is no such file");
  EXPECT_THROW(load("parts"), Error);
  write("big.toml", std::string(1024 * 1024 + 1, '#'));
  EXPECT_NE(complaint("big.toml").find("it is larger than 1048576 bytes"), std::string::npos);
}

}  // namespace
}  // namespace prun::test
