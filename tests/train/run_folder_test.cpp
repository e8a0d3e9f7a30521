// Who may write into a run's folder.
#include "train/checkpoint/run_folder.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "base/durable_file.hpp"
#include "support/assembly_fixture.hpp"
#include "support/temp_folder.hpp"

namespace prun::test::run_folder_test {
namespace {

namespace fs = std::filesystem;

class RunFolder : public testing::Test {
 protected:
  Recipe recipe(const std::string& fresh = "false", const std::string& resume = "") const {
    return tiny_recipe({"run.out=" + folder(), "run.fresh=" + fresh, "run.resume=" + resume});
  }
  std::string folder() const { return parent_ / "run"; }
  std::string refusal(const Recipe& recipe) const {
    try {
      RunClaim{recipe};
    } catch (const Error& error) {
      EXPECT_EQ(exit_code(error.code()), 2) << error.what();
      return error.what();
    }
    return "none";
  }
  void leave_lock(const std::string& text) const { parent_.write("run/run.lock", text); }

  TempFolder parent_;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(RunFolder, ASecondRunIsRefusedByNameUntilTheFirstEnds) {
  {
    const RunClaim first(recipe());
    const std::string said = refusal(recipe("true"));
    EXPECT_TRUE(has(said, "is in use by the run 'tiny' (pid " + std::to_string(::getpid()) + " on ")) << said;
  }
  EXPECT_FALSE(fs::exists(folder() + "/run.lock"));
  EXPECT_EQ(refusal(recipe()), "none");
}

// It leaves its lock file, but the system's lock is gone with it.
TEST_F(RunFolder, ALockOfADeadProcessIsStale) {
  const pid_t child = ::fork();
  if (child == 0) {
    const RunClaim claim(recipe());
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(has(read_file(folder() + "/run.lock"), "\"pid\":" + std::to_string(child)));
  EXPECT_EQ(refusal(recipe()), "none");
}

TEST_F(RunFolder, WhatALockFileSaysIsHeededWithoutLocksToo) {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  const std::string here = std::string("{\"run\":\"old\",\"host\":\"") + host + "\",\"pid\":";
  leave_lock(here + "1,\"started\":1}");  // another process had that number
  EXPECT_EQ(refusal(recipe()), "none");
  leave_lock("{\"run\":\"old\",\"host\":\"elsewhere\",\"pid\":1,\"started\":1}");
  const std::string said = refusal(recipe());
  EXPECT_TRUE(has(said, "'old' (pid 1 on elsewhere)") && has(said, "remove " + folder() + "/run.lock"))
      << said;
  leave_lock("half a sen");
  EXPECT_EQ(refusal(recipe()), "none");
}

TEST_F(RunFolder, ARunThatIsThereIsRefusedContinuedOrMoved) {
  parent_.write("run/log.jsonl", "first");
  const std::string said = refusal(recipe());
  EXPECT_TRUE(has(said, "holds a run already; move it to " + folder() + ".1 by --set run.fresh=true"))
      << said;
  parent_.write("run/latest", "step-00000001\n");
  EXPECT_TRUE(has(refusal(recipe()), "--set run.resume=" + folder()));
  EXPECT_TRUE(has(refusal(recipe("false", parent_ / "another")), "holds a run already"));
  EXPECT_EQ(refusal(recipe("true", folder())), "none");
  EXPECT_EQ(refusal(recipe("false", folder() + "/step-00000001/")), "none");
  EXPECT_EQ(read_file(folder() + "/log.jsonl"), "first");

  EXPECT_EQ(RunClaim(recipe("true")).moved_to(), folder() + ".1");
  EXPECT_EQ(read_file(folder() + ".1/log.jsonl"), "first");
  parent_.write("run/log.jsonl", "second");
  EXPECT_EQ(RunClaim(recipe("true")).moved_to(), folder() + ".2");
  EXPECT_EQ(read_file(folder() + ".2/log.jsonl"), "second");
  EXPECT_TRUE(fs::is_empty(folder()));
  EXPECT_FALSE(fs::exists(folder() + ".1/run.lock"));
}

// As large as a checkpoint: whoever starts there next removes it, refused or not.
TEST_F(RunFolder, WhatAKilledRunWasWritingGoesWithTheNextStart) {
  parent_.write("run/log.jsonl", "first");
  const std::string dead = folder() + "/.trial-save.tmp-1-0", file = folder() + "/.latest.tmp-1-1";
  fs::create_directory(dead);
  parent_.write("run/.trial-save.tmp-1-0/rank-0.safetensors", "bytes");
  parent_.write("run/.latest.tmp-1-1", "half");
  const Unfinished alive(folder() + "/step-00000001", Unfinished::Kind::folder);
  EXPECT_TRUE(has(refusal(recipe()), "holds a run already"));
  EXPECT_FALSE(fs::exists(dead) || fs::exists(file));
  EXPECT_TRUE(fs::exists(alive.path()));
}

// Whatever somebody has put there, nothing outside of the folder changes.
TEST_F(RunFolder, LinksThatLeadElsewhereAreRefused) {
  const std::string outside = parent_.write("outside", "mine");
  const std::string resume = folder();
  const auto refused = [&](const std::string& name, const std::string& part) {
    const std::string said = refusal(recipe("false", resume));
    EXPECT_TRUE(has(said, folder() + "/" + name + " is " + part) &&
                has(said, "would change a file elsewhere"))
        << said;
    EXPECT_EQ(read_file(outside), "mine");
    fs::remove(folder() + "/" + name);
  };
  fs::create_directories(folder());
  for (const char* name : {"run.lock", "log.jsonl", "failures.log", "notify.log", "ucx.log", "run.id",
                           "latest", "recipe.toml", "plugins.json"}) {
    fs::create_symlink(outside, folder() + "/" + name);
    refused(name, "a link");
  }
  for (const char* name : {"run.lock", "log.jsonl", "failures.log", "notify.log", "ucx.log"}) {
    fs::create_hard_link(outside, folder() + "/" + name);
    refused(name, "a file that has another name as well");
  }
  EXPECT_EQ(refusal(recipe("false", resume)), "none");
}

TEST_F(RunFolder, ACommandHasItAloneAndWaitsForAnother) {
  fs::create_directories(folder());
  {
    const RunClaim run(recipe());
    try {
      const RunClaim command(fs::path(folder()), "prun ckpt prune");
      ADD_FAILURE() << "a run works there";
    } catch (const Error& error) {
      EXPECT_EQ(exit_code(error.code()), 2);
      EXPECT_TRUE(has(error.what(), "is in use by the run 'tiny' (pid ") && has(error.what(), "run.keep"))
          << error.what();
    }
  }
  leave_lock("{\"run\":\"old\",\"host\":\"elsewhere\",\"pid\":1,\"started\":1}");
  try {
    const RunClaim command(fs::path(folder()), "prun ckpt prune");
    ADD_FAILURE() << "a run of another host may work there";
  } catch (const Error& error) {
    EXPECT_TRUE(has(error.what(), "the run 'old' (pid 1 on elsewhere), which cannot be asked from here"))
        << error.what();
  }
  fs::remove(folder() + "/run.lock");
  std::thread second;
  std::atomic<bool> first_is_over = false;
  {
    const RunClaim command(fs::path(folder()), "prun ckpt prune");
    EXPECT_TRUE(has(refusal(recipe()), "is in use by prun ckpt prune (pid "));
    EXPECT_FALSE(holder_of(folder()));
    second = std::thread([&] {
      const RunClaim waited(fs::path(folder()), "prun ckpt prune");
      EXPECT_TRUE(first_is_over);
    });
    first_is_over = true;
  }
  second.join();
  EXPECT_FALSE(fs::exists(folder() + "/run.lock"));
}

TEST_F(RunFolder, FilesThatAreNoRunsAreNoReason) {
  parent_.write("run/notes.txt", "mine");
  EXPECT_EQ(refusal(recipe()), "none");
}

TEST_F(RunFolder, ALinkStaysWhereTheRunIsMoved) {
  fs::create_directories(parent_ / "disk/run");
  fs::create_symlink(parent_ / "disk/run", folder());
  parent_.write("disk/run/log.jsonl", "first");
  EXPECT_EQ(refusal(recipe("true")), "none");
  EXPECT_TRUE(fs::is_symlink(folder()));
  EXPECT_TRUE(fs::exists(parent_ / "disk/run.1/log.jsonl"));
}

TEST_F(RunFolder, OneThatCannotBeIsRefusedAndNothingMade) {
  parent_.write("run", "a file");
  EXPECT_TRUE(has(refusal(recipe()), "run.out")) << refusal(recipe());
  EXPECT_THROW(check_run_folder(recipe()), Error);
  check_run_folder(tiny_recipe({"run.out=" + (parent_ / "a/b/c")}));
  EXPECT_FALSE(fs::exists(parent_ / "a"));
}

TEST_F(RunFolder, OneThatGoesAwayIsNoticed) {
  fs::create_directories(folder());
  const FolderInPlace place(folder());
  place.check();
  fs::rename(folder(), parent_ / "moved");
  EXPECT_THROW(place.check(), Error);
  fs::create_directories(folder());
  EXPECT_THROW(place.check(), Error) << "another folder of that name";
}

}  // namespace
}  // namespace prun::test::run_folder_test
