// prun demo, as a person runs it right after installing: what it shows, and what it says where it cannot.
#include <gtest/gtest.h>

#include <algorithm>

#include "binary.hpp"
#include "demo/demo_text.hpp"
#include "documents.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test {
namespace {

namespace fs = std::filesystem;

fs::path empty_folder(const std::string& name) {
  const fs::path folder = temporary_folder() / ("demo-" + name);
  fs::create_directories(folder);
  return folder;
}

// Its recipe with fewer steps, since the whole takes half a minute of two idle cores.
Result demo_in(const fs::path& folder, const std::string& before = "") {
  return shell("cd " + folder.string() + " && " + before +
               " $PRUN demo --set run.steps=20 --set run.save_every=20");
}

std::size_t lines_of(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(Demo, ShowsPlanCurveSampleAndWhatIsNext) {
  const fs::path folder = empty_folder("all");
  const Result demo = demo_in(folder);
  ASSERT_EQ(demo.code, 0) << demo.out;
  std::size_t last = 0;
  for (const char* const shown :
       {"$ prun plan prun-demo/demo.toml", "\nmemory ", "$ prun prun-demo/demo.toml", "step 20/20",
        "\nloss  ", "$ prun generate prun-demo/run \"A strategy \"", "A strategy ", "\nNext:\n",
        "prun report prun-demo/run", "prun init", "prun doctor"}) {
    const std::size_t at = demo.out.find(shown, last);
    ASSERT_NE(at, std::string::npos) << shown << "\n" << demo.out;
    last = at;
  }
  EXPECT_LE(lines_of(demo.out), 60U) << demo.out;
  // What it names can be typed.
  EXPECT_EQ(shell("cd " + folder.string() + " && $PRUN report prun-demo/run").code, 0);
  EXPECT_EQ(shell("cd " + folder.string() + " && $PRUN check prun-demo/demo.toml").code, 0);
}

TEST(Demo, RunsAgainAndElsewhere) {
  const fs::path folder = empty_folder("again");
  for (const int code : {demo_in(folder).code, demo_in(folder).code}) EXPECT_EQ(code, 0);
  const Result other = shell("cd " + folder.string() +
                             " && $PRUN demo --out 'my demo' --set run.steps=2 --set run.save_every=2");
  EXPECT_EQ(other.code, 0) << other.out;
  EXPECT_NE(other.out.find("$ prun plan \"my demo/demo.toml\""), std::string::npos) << other.out;
}

TEST(Demo, NeedsNoHome) {
  const Result demo = demo_in(empty_folder("home"), "unset HOME XDG_CACHE_HOME;");
  EXPECT_EQ(demo.code, 0) << demo.out;
}

TEST(Demo, NeedsNoNetwork) {
  if (shell("unshare -rn true").code != 0) GTEST_SKIP() << "no network namespace can be made here";
  const Result demo = demo_in(empty_folder("network"), "unshare -rn");
  EXPECT_EQ(demo.code, 0) << demo.out;
}

TEST(Demo, SaysInOneSentenceThatAFolderCannotBeWritten) {
  const Result demo = shell("cd /sys && $PRUN demo");
  EXPECT_EQ(demo.code, exit_code(ErrorCode::storage)) << demo.out;
  EXPECT_NE(demo.out.find("'prun-demo'"), std::string::npos) << demo.out;
  EXPECT_NE(demo.out.find("prun demo --out FOLDER"), std::string::npos) << demo.out;
  EXPECT_EQ(lines_of(demo.out), 1U) << demo.out;
}

TEST(Demo, LearnsFromSentences) {
  const std::string prose = prose_of(demo_pages);
  EXPECT_GE(prose.size(), 100000U);
  EXPECT_EQ(prose.find("```"), std::string::npos);
  EXPECT_EQ(prose.find("\n|"), std::string::npos);
  EXPECT_EQ(prose_of("# Head\n[a link](x.md) and `code`\n```\ncode\n```\n| table |\nend"),
            "a link and code\nend\n");
}

}  // namespace
}  // namespace prun::test
