// Runs under the limits that a container or an administrator sets: each ends with one sentence that says what
// is needed and what there is, or trains.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runs.hpp"

namespace prun::test::limits_test {
namespace {

namespace fs = std::filesystem;

std::string prun_on(const std::string& recipe) { return std::string("exec " PRUN_TEST_BINARY " ") + recipe; }

std::string short_recipe(const std::string& name, int ranks) {
  return recipe_file(name, ranks, {"run.steps=3"});
}

// Whatever the limit: done or refused, in words of ours.
void expect_order(const Ended& ended, const std::string& limit) {
  EXPECT_TRUE(ended.code == 0 || ended.code == 2) << limit << ": " << ended.code << ": " << ended.text;
  for (const char* sign : {"terminate called", "prun: unexpected", "killed by"})
    EXPECT_FALSE(contains(ended.text, sign)) << limit << ": " << ended.text;
}

// In one sentence beside what `auto` stands for, and before a step.
void expect_refused(const Ended& ended, const std::string& needs, const std::string& allowed) {
  EXPECT_EQ(ended.code, 2) << ended.text;
  EXPECT_EQ(count_of(ended.text, needs), 1) << ended.text;
  EXPECT_EQ(count_of(ended.text, allowed), 1) << ended.text;
  for (const char* sign : {"rank 0", "step 1/", " plugin '", "disk"})
    EXPECT_FALSE(contains(ended.text, sign)) << ended.text;
}

TEST(Limits, OpenFiles) {
  for (const int ranks : {1, 2}) {
    const std::string recipe = short_recipe("files-" + std::to_string(ranks), ranks);
    const std::string few = ranks == 1 ? "20" : "40";
    expect_refused(run_shell("ulimit -n " + few + "; " + prun_on(recipe)), "a process of this run needs ",
                   " open files, " + few + " are allowed here; raise the limit (ulimit -n)");
    // What the hard limit allows is taken.
    const Ended raised = run_shell("ulimit -Sn " + few + "; " + prun_on(recipe));
    EXPECT_EQ(raised.code, 0) << raised.text;
    // With fewer the system cannot load a program.
    for (int files = 8; files < 40; files += is_long() ? 1 : 5)
      expect_order(run_shell("ulimit -n " + std::to_string(files) + "; " + prun_on(recipe)),
                   std::to_string(files) + " open files");
  }
}

TEST(Limits, SizesOfFiles) {
  for (const int ranks : {1, 2})
    expect_refused(run_shell("ulimit -f 8; " + prun_on(short_recipe("sizes", ranks))),
                   "a rank writes files of ",
                   "4.00 KiB are allowed here; raise the limit on the size of files (ulimit -f)");
}

// Of one rank and of two, of ranks that others have started too: by what they say that they need.
TEST(Limits, AddressSpace) {
  for (const int ranks : {1, 2}) {
    const std::string recipe = short_recipe("address-" + std::to_string(ranks), ranks);
    const auto with = [&](int mebibytes) {
      return run_shell("ulimit -v " + std::to_string(1024 * mebibytes) + "; " + prun_on(recipe));
    };
    const Ended refused = with(64);
    const std::string needs = "a rank needs ";
    expect_refused(refused, needs, "64.00 MiB are allowed here; raise the limit (ulimit -v)");
    ASSERT_TRUE(contains(refused.text, needs)) << refused.text;
    const int needed = std::atoi(refused.text.c_str() + refused.text.find(needs) + needs.size());
    for (const int less : {1, 20, 40}) expect_refused(with(needed - less), needs, " of address space, ");
    for (int more = 1; more <= 300; more += is_long() ? 8 : 47) {
      const Ended enough = with(needed + more);
      EXPECT_EQ(enough.code, 0) << needed + more << " MiB: " << enough.text;
    }
    for (int mebibytes = 24; mebibytes < 64; mebibytes += is_long() ? 4 : 11)
      expect_order(with(mebibytes), std::to_string(mebibytes) + " MiB of address space");
  }
}

TEST(Limits, OfARankThatOthersStarted) {
  const std::string recipe = short_recipe("by-others", 2);
  std::string settings = "env";
  for (const auto& [name, value] : torchrun_variables(0, 2, free_port()))
    settings += " " + name + "=\"" + value + "\"";
  const Ended ended = run_shell("ulimit -f 8; exec " + settings + " " PRUN_TEST_BINARY " " + recipe);
  EXPECT_EQ(ended.code, 2) << ended.text;
  EXPECT_TRUE(contains(ended.text, "prun: rank 0: a rank writes files of ")) << ended.text;
}

TEST(Limits, Stacks) {
  for (const int ranks : {1, 2}) {
    const std::string recipe = short_recipe("stacks-" + std::to_string(ranks), ranks);
    for (const std::string kibibytes : {"64", "512"})
      expect_refused(run_shell("ulimit -s " + kibibytes + "; " + prun_on(recipe)),
                     "prun: cannot start a thread with 1.00 MiB of stack: ",
                     kibibytes + ".00 KiB are allowed here; raise the limit (ulimit -s)");
    // What the hard limit allows is taken.
    for (const std::string limit : {"-Ss 64", "-s 1024", "-s unlimited"}) {
      const Ended enough = run_shell("ulimit " + limit + "; " + prun_on(recipe));
      EXPECT_EQ(enough.code, 0) << limit << ": " << enough.text;
    }
  }
}

// A control group with one limit, for as long as this lives: a controller may have a tree of its own or share
// the one there is, and its limits are called differently then.
class ControlGroup {
 public:
  ControlGroup(const std::string& controller, const char* own_name, const char* shared_name,
               std::int64_t limit) {
    const std::string name = "prun-test-" + std::to_string(::getpid());
    make("/sys/fs/cgroup/" + controller + "/" + name, own_name, limit);
    if (!exists()) make("/sys/fs/cgroup/" + name, shared_name, limit);
  }
  ~ControlGroup() {
    std::error_code ignored;
    for (const auto start = Clock::now(); exists() && seconds_since(start) < 10; ::usleep(10'000))
      if (fs::remove(path_, ignored)) return;
  }
  ControlGroup(const ControlGroup&) = delete;
  ControlGroup& operator=(const ControlGroup&) = delete;

  bool exists() const { return !path_.empty(); }
  std::string enter() const { return "echo $$ > " + (path_ / "cgroup.procs").string() + "; "; }

 private:
  void make(const fs::path& group, const char* name, std::int64_t limit) {
    std::error_code trouble;
    if (!fs::create_directory(group, trouble)) return;
    if (std::ofstream file(group / name); file << limit << std::flush)
      path_ = group;
    else
      fs::remove(group, trouble);
  }

  fs::path path_;
};

TEST(Limits, ProcessesOfAControlGroup) {
  for (const int ranks : {1, 2}) {
    const std::string recipe = short_recipe("processes-" + std::to_string(ranks), ranks);
    for (int most = 1; most <= 25; most += is_long() ? 1 : 6) {
      const ControlGroup limit("pids", "pids.max", "pids.max", most);
      if (!limit.exists()) GTEST_SKIP() << "no control group can be made here";
      const Ended ended = run_shell(limit.enter() + prun_on(recipe));
      expect_order(ended, std::to_string(most) + " processes, " + std::to_string(ranks) + " ranks");
      if (most < 4) {
        EXPECT_EQ(ended.code, 2) << ended.text;
      }
      // One alone has no room for the watch over plugins. Above ten, threads of kernels may be the ones that
      // find none.
      if (ranks == 2 && most > 1 && most < 10) {
        EXPECT_TRUE(contains(ended.text, " processes and threads together, " + std::to_string(most - 2) +
                                             " more are allowed here; raise the limit (pids.max"))
            << ended.text;
      }
    }
  }
}

// Less than a process takes before its plan: no negative number of bytes is said to be left for that.
TEST(Limits, MemoryOfAControlGroup) {
  const ControlGroup limit("memory", "memory.limit_in_bytes", "memory.max", 8 << 20);
  if (!limit.exists()) GTEST_SKIP() << "no control group can be made here";
  const Ended ended = run_shell(limit.enter() + prun_on(short_recipe("memory", 2)));
  EXPECT_EQ(ended.code, 2) << ended.text;
  EXPECT_TRUE(contains(ended.text, " and a rank's process ")) << ended.text;
  EXPECT_TRUE(contains(ended.text, " beside it, 8.00 MiB may be used in all; raise ")) << ended.text;
}

// With a folder of that size, in a mount namespace.
Ended run_with_mount(const std::string& folder, const std::string& size, const std::string& command) {
  return run_shell("unshare --mount sh -c 'mount -t tmpfs -o size=" + size + " tmpfs " + folder + " && " +
                   command + "'");
}
Ended run_with_shared_memory(const std::string& size, const std::string& command) {
  return run_with_mount("/dev/shm", size, command);
}
bool makes_mounts() { return run_with_shared_memory("1m", "true").code == 0; }

TEST(Limits, SharedMemory) {
  if (!makes_mounts()) GTEST_SKIP() << "no mount namespace can be made here";
  const std::string recipe = short_recipe("shared", 2);
  const Ended refused = run_with_shared_memory("1m", prun_on(recipe));
  EXPECT_EQ(refused.code, 2) << refused.text;
  EXPECT_TRUE(
      contains(refused.text, " of shared memory together, /dev/shm has 1.00 MiB left; make it larger"))
      << refused.text;
  EXPECT_FALSE(contains(refused.text, "UCX")) << refused.text;
  const Ended enough = run_with_shared_memory("4m", prun_on(recipe));
  EXPECT_EQ(enough.code, 0) << enough.text;
}

// It takes one checkpoint, as the trial before the first step finds, and not all of them.
TEST(Limits, ADiskThatFillsUp) {
  if (!makes_mounts()) GTEST_SKIP() << "no mount namespace can be made here";
  const std::string disk = out_folder("disk");
  fs::create_directories(disk);
  for (const int ranks : {1, 2}) {
    const std::string recipe = recipe_file(
        "fills", ranks, {"run.steps=1000", "run.save_every=1", "run.keep=0", "run.out=" + disk + "/run"});
    const Ended ended = run_with_mount(disk, "2m", prun_on(recipe));
    EXPECT_EQ(ended.code, 13) << ended.text;
    EXPECT_TRUE(
        contains(ended.text, "No space left on device; free some space or choose a folder on another disk"))
        << ended.text;
    EXPECT_TRUE(contains(ended.text, "prun:   next, once files can be written: prun " + recipe +
                                         " --set run.resume=" + disk + "/run"))
        << ended.text;
  }
}

// Where the need is not known before ranks start, UCX's own reason is.
TEST(Limits, SharedMemoryOfRanksThatOthersStarted) {
  if (!makes_mounts()) GTEST_SKIP() << "no mount namespace can be made here";
  const std::string recipe = short_recipe("shared-by-hand", 2);
  std::string both;
  const int port = free_port();
  for (int rank = 0; rank < 2; ++rank) {
    std::string settings = "env";
    for (const auto& [name, value] : torchrun_variables(rank, 2, port))
      settings += " " + name + "=\"" + value + "\"";
    both += settings + " " PRUN_TEST_BINARY " " + recipe + " & ";
  }
  const Ended ended = run_with_shared_memory("1m", both + "wait");
  EXPECT_TRUE(contains(ended.text, "UCX could not make a worker: ")) << ended.text;
  EXPECT_TRUE(contains(ended.text, "; UCX says: ")) << ended.text;
  EXPECT_TRUE(contains(ended.text, "/dev/shm")) << ended.text;
  EXPECT_FALSE(contains(ended.text, "check the UCX_ variables")) << ended.text;
}

// A container's default.
TEST(Limits, EightRanksInSixtyFourMebibytesOfSharedMemory) {
  if (!makes_mounts()) GTEST_SKIP() << "no mount namespace can be made here";
  const Ended ended = run_with_shared_memory("64m", "cd " PRUN_SOURCE_DIR " && exec " PRUN_TEST_BINARY
                                                    " configs/3d.toml --set run.steps=2 --set run.out=" +
                                                        out_folder("3d"));
  EXPECT_EQ(ended.code, 0) << ended.text;
}

}  // namespace
}  // namespace prun::test::limits_test
