// prun doctor: what it says of machines that are made up, and of this one.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.hpp"
#include "cli/binary.hpp"
#include "doctor/findings.hpp"
#include "support/assembly_fixture.hpp"
#include "support/temp_folder.hpp"

namespace prun::test::doctor_test {
namespace {

namespace fs = std::filesystem;

const Finding& of(const Findings& all, const std::string& what) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Finding& one) { return one.what == what; });
  if (found == all.end()) throw std::runtime_error("nothing is said of " + what);
  return *found;
}

void write(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

TEST(Doctor, ReadsWhatTheSystemSays) {
  const TempFolder folder;
  const fs::path root = folder.path();
  write(root / "sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  write(root / "proc/meminfo", "MemTotal: 4194304 kB\nMemFree: 1 kB\nMemAvailable: 2097152 kB\n");
  write(root / "sys/devices/system/node/node0/cpulist", "0-3\n");
  write(root / "sys/devices/system/node/node1/cpulist", "4-7\n");
  const Findings all = machine_findings(root);
  EXPECT_EQ(of(all, "huge pages").health, Health::slow);
  EXPECT_NE(of(all, "huge pages").mend.find("transparent_hugepage/enabled"), std::string::npos);
  EXPECT_EQ(of(all, "memory").found, "2.00 GiB of 4.00 GiB to be had");
  EXPECT_EQ(of(all, "memory nodes").found.substr(0, 2), "2,");
  write(root / "sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  EXPECT_EQ(of(machine_findings(root), "huge pages").health, Health::good);
}

TEST(Doctor, PluginsTellWhatTheyFind) {
  const Findings found = findings_in("good|ways|tcp|\nslow|links|none|plug one in\n");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].found, "tcp");
  EXPECT_EQ(found[1].health, Health::slow);
  EXPECT_EQ(found[1].mend, "plug one in");
  for (const char* wrong : {"fine|ways|tcp|", "good|ways|tcp", "good|ways|a|b|c", "tcp"})
    EXPECT_THROW(findings_in(wrong), Error) << wrong;
}

TEST(Doctor, SaysHowUcxCarriesBytesHere) {
  const Finding ways = of(plugin_findings(plugins()), "UCX transports");
  EXPECT_EQ(ways.health, Health::good);
  for (const char* way : {"self", "tcp", "posix"})
    EXPECT_NE((" " + ways.found + " ").find(std::string(" ") + way + " "), std::string::npos) << ways.found;
}

TEST(Doctor, EachFindingThatIsNotGoodSaysWhatToDo) {
  for (const Finding& finding : machine_findings())
    EXPECT_EQ(finding.health == Health::good, finding.mend.empty()) << to_text(std::span(&finding, 1));
}

TEST(Doctor, TriesTheDriveAndLeavesNothing) {
  const TempFolder folder;
  const Finding drive = drive_finding(folder.path());
  EXPECT_NE(drive.health, Health::broken) << drive.found;
  EXPECT_NE(drive.found.find("/s, read at "), std::string::npos) << drive.found;
  EXPECT_TRUE(fs::is_empty(folder.path()));
  EXPECT_NE(drive_finding("/proc/nowhere").health, Health::good);
}

TEST(Doctor, BrokenIsAnExitCode) {
  const TempFolder folder;
  const std::string recipe = folder / "tiny.toml";
  std::ofstream(recipe) << tiny_recipe({"run.out=" + (folder / "run"), "run.save_every=1"}).resolved_toml();
  const Result good = prun({"doctor", recipe});
  EXPECT_EQ(good.code, 0) << good.out;
  EXPECT_NE(good.out.find("good    checkpoints"), std::string::npos) << good.out;
  EXPECT_FALSE(fs::exists(folder / "run"));
  EXPECT_EQ(prun({"doctor", recipe, "--quiet"}).out.find("good "), std::string::npos);
  const Result small = prun({"doctor", recipe, "--json", "--set", "device.memory=1KiB"});
  EXPECT_EQ(small.code, 2);
  const JsonValue json = parse_json(small.out, "doctor");
  EXPECT_TRUE(json.at("broken").as_bool());
  const JsonArray& findings = json.at("findings").as_array();
  const auto broken = std::find_if(findings.begin(), findings.end(), [](const JsonValue& one) {
    return one.at("health").as_string() == "broken";
  });
  ASSERT_NE(broken, findings.end());
  EXPECT_EQ(broken->at("what").as_string(), "plan");
  EXPECT_NE(broken->at("found").as_string().find("1.00 KiB may be used"), std::string::npos);
  EXPECT_EQ(prun({"doctor", folder / "nowhere.toml"}).code, 2);
}

// The start refuses it, so that checks do.
TEST(Doctor, SomethingElseCalledBestIsNamed) {
  const TempFolder folder;
  const std::string recipe = folder / "tiny.toml";
  std::ofstream(recipe) << tiny_recipe({"run.out=" + (folder / "run"), "eval.every=1", "eval.batches=1",
                                        "eval.keep_best=true", "run.fresh=false"},
                                       "[[validation]]\nplugin = 'tokens'\npath = '" +
                                           (temporary_folder() / "tokens.bin").string() + "'\n")
                               .resolved_toml();
  EXPECT_EQ(prun({"check", recipe}).code, 0) << prun({"check", recipe}).out;
  fs::create_directories(folder / "run/best");
  for (const char* verb : {"check", "doctor"}) {
    const Result refused = prun({verb, recipe});
    EXPECT_EQ(refused.code, 2) << refused.out;
    EXPECT_NE(refused.out.find("/run/best is no link of prun's"), std::string::npos) << refused.out;
  }
}

// Each rank alone has room.
TEST(Doctor, ACheckSaysThatAHostHasNoRoomForItsRanks) {
  const TempFolder folder;
  const std::string recipe = folder / "tiny.toml";
  std::ofstream(recipe) << tiny_recipe(
                               {"run.out=" + (folder / "run"), "batch.micro=2", "device.plan_gib=0.04"},
                               data_parallel(2))
                               .resolved_toml();
  const Result check = prun({"check", recipe});
  EXPECT_EQ(check.code, 0) << check.out;
  EXPECT_NE(check.out.find("note: the 2 ranks of a host together need "), std::string::npos) << check.out;
}

TEST(Doctor, SaysWhatCarriesTheAxesOfARecipe) {
  const TempFolder folder;
  const std::string recipe = folder / "tiny.toml";
  std::ofstream(recipe)
      << tiny_recipe({"run.out=" + (folder / "run"), "batch.micro=2"}, data_parallel(2)).resolved_toml();
  const Result shares = prun({"doctor", recipe});
  EXPECT_EQ(shares.code, 0) << shares.out;
  EXPECT_NE(shares.out.find("good    axis dp         goes by ucx: shared memory ("), std::string::npos)
      << shares.out;
  const Result by_network = shell("UCX_TLS=tcp,self $PRUN doctor " + recipe);
  EXPECT_EQ(by_network.code, 0) << by_network.out;
  EXPECT_NE(by_network.out.find("slow    axis dp         goes by ucx: tcp ("), std::string::npos)
      << by_network.out;
}

TEST(Doctor, CountsTheCheckpointsThatStay) {
  const TempFolder folder;
  const std::string recipe = folder / "tiny.toml";
  std::ofstream(recipe) << tiny_recipe(
                               {"run.out=" + (folder / "run"), "run.save_every=1", "run.steps=1000000000000"})
                               .resolved_toml();
  const Result many = prun({"doctor", recipe});
  EXPECT_EQ(many.code, 2) << many.out;
  EXPECT_NE(many.out.find("set run.keep, or name a larger drive"), std::string::npos) << many.out;
  EXPECT_EQ(prun({"doctor", recipe, "--set", "run.keep=2"}).code, 0);
}

TEST(Doctor, TriesTheDrivesOfTiers) {
  if (!fs::exists(fs::path(PRUN_TEST_PLUGINS) / "libprun_device_nvme.so"))
    GTEST_SKIP() << "built without liburing";
  const TempFolder folder;
  const std::string recipe = folder / "tiny.toml";
  std::ofstream(recipe) << tiny_recipe({"run.out=" + (folder / "run")}).resolved_toml() +
                               "\n[tier.nvme]\npaths = ['" + (folder / "fast") + "']\n";
  fs::create_directory(folder / "fast");
  const Result both = prun({"doctor", recipe});
  EXPECT_EQ(both.code, 0) << both.out;
  EXPECT_NE(both.out.find((folder / "fast") + ": "), std::string::npos) << both.out;
}

TEST(Doctor, ALimitThatIsTooLowIsNamed) {
  const TempFolder folder;
  const std::string recipe = folder / "tiny.toml";
  std::ofstream(recipe) << tiny_recipe({"run.out=" + (folder / "run")}).resolved_toml();
  for (const std::string asked : {"", recipe.c_str()})
    for (const char* files : {"8", "64"}) {
      const Result few = shell(std::string("ulimit -n ") + files + "; $PRUN doctor " + asked);
      EXPECT_EQ(few.code, 2) << few.out;
      EXPECT_NE(few.out.find("and " + std::string(files) + " are allowed here"), std::string::npos)
          << few.out;
      EXPECT_NE(few.out.find("raise the limit (ulimit -n)"), std::string::npos) << few.out;
    }
  EXPECT_EQ(shell("ulimit -Sn 64; $PRUN doctor " + recipe).code, 0);
}

}  // namespace
}  // namespace prun::test::doctor_test
