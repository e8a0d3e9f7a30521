// What the kernel counts and logs, as files of a test say it.
#include "launch/launch_report.hpp"

#include <gtest/gtest.h>

#include "support/temp_folder.hpp"

namespace prun::test::kernel_word_test {
namespace {

class KernelSays : public testing::Test {
 protected:
  KernelFiles files() const {
    return {folder / "cgroup", folder / "groups", folder / "vmstat", folder / "kmsg"};
  }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  const TempFolder folder;
};

TEST_F(KernelSays, AControlGroupThatRanOutOfMemory) {
  folder.write("cgroup", "0::/job/step\n");
  folder.write("groups/job/step/memory.events", "low 0\nmax 9\noom 3\noom_kill 3\n");
  folder.write("groups/job/step/memory.max", "2147483648\n");
  const KernelWord word(files());
  EXPECT_TRUE(has(word.of(17), "somebody sent the signal")) << word.of(17);
  folder.write("groups/job/step/memory.events", "low 0\nmax 9\noom 3\noom_kill 5\n");
  EXPECT_TRUE(has(word.of(17), "for want of memory: it has ended 2 of this control group's processes"))
      << word.of(17);
  EXPECT_TRUE(has(word.of(17), "its limit is 2.00 GiB")) << word.of(17);
}

TEST_F(KernelSays, TheOldControlGroupsAndAContainersRoot) {
  folder.write("cgroup", "9:cpu:/x\n4:memory:/not/seen/here\n");
  folder.write("groups/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
  folder.write("groups/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const KernelWord word(files());
  folder.write("groups/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  EXPECT_TRUE(has(word.of(17), "it has ended 1 of this")) << word.of(17);
  EXPECT_FALSE(has(word.of(17), "limit")) << word.of(17);
}

TEST_F(KernelSays, TheLogNamesTheProcess) {
  folder.write(
      "kmsg", "6,1,2,-;boot\n3,9,9,-;Out of memory: Killed process 17 (prun) total-vm:9kB\n6,10,10,-;else\n");
  const KernelWord word(files());
  EXPECT_TRUE(has(word.of(17), "for want of memory: Killed process 17 (prun) total-vm:9kB")) << word.of(17);
  EXPECT_TRUE(has(word.of(1), "somebody sent the signal")) << word.of(1);
}

TEST_F(KernelSays, AnotherProcessOfTheMachine) {
  folder.write("vmstat", "pgfault 1\noom_kill 4\n");
  const KernelWord word(files());
  folder.write("vmstat", "pgfault 1\noom_kill 5\n");
  EXPECT_TRUE(has(word.of(17), "may have been for want of memory")) << word.of(17);
}

}  // namespace
}  // namespace prun::test::kernel_word_test
