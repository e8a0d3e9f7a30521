// What a host allows: control groups of both kinds, and the sentence for each limit.
#include "train/assemble/host_limits.hpp"

#include <gtest/gtest.h>

#include "support/assembly_fixture.hpp"
#include "support/temp_folder.hpp"

namespace prun::test::host_limits_test {
namespace {

std::int64_t room_in(const TempFolder& root) { return room_on_host(root.path()).threads; }

TEST(HostLimits, ControllersWithATreeEach) {
  const TempFolder root;
  root.write("proc/self/cgroup", "9:memory:/jobs/a\n8:pids:/jobs/a\n");
  root.write("sys/fs/cgroup/pids/jobs/a/pids.max", "100\n");
  root.write("sys/fs/cgroup/pids/jobs/a/pids.current", "40\n");
  EXPECT_EQ(room_in(root), 60);
  // The group above allows less.
  root.write("sys/fs/cgroup/pids/jobs/pids.max", "200\n");
  root.write("sys/fs/cgroup/pids/jobs/pids.current", "190\n");
  EXPECT_EQ(room_in(root), 10);
}

TEST(HostLimits, ControllersThatShareATree) {
  const TempFolder root;
  root.write("proc/self/cgroup", "0::/\n");
  root.write("sys/fs/cgroup/pids.max", "max\n");
  root.write("sys/fs/cgroup/pids.current", "40\n");
  const std::int64_t without = room_in(root);
  EXPECT_GT(without, 1 << 30);
  root.write("sys/fs/cgroup/pids.max", "64\n");
  EXPECT_EQ(room_in(root), 24);
}

std::string refusal(HostShare needs) {
  const HostShare room{10, 64, 4096, 1 << 20, 1 << 16};
  try {
    check_room(needs, room);
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.code()), 2);
    return error.what();
  }
  return "";
}

TEST(HostLimits, EachIsRefusedWithItsNumbers) {
  EXPECT_EQ(refusal({10, 64, 4096, 1 << 20, 1 << 16}), "");
  EXPECT_EQ(refusal({.threads = 11}).find("the ranks need 11 processes and threads together, 10 more"), 0u);
  EXPECT_EQ(refusal({.descriptors = 65}).find("a process of this run needs 65 open files, 64 are"), 0u);
  EXPECT_EQ(refusal({.file_bytes = 8192}).find("a rank writes files of 8.00 KiB, 4.00 KiB are"), 0u);
  EXPECT_EQ(refusal({.address_bytes = 2 << 20}).find("a rank needs 2.00 MiB of address space, 1.00 MiB"), 0u);
  EXPECT_EQ(refusal({.shared_bytes = 1 << 17}).find("the ranks need 128.00 KiB of shared memory together, "),
            0u);
}

TEST(HostLimits, NeedsGrowWithTheRanks) {
  const auto needs = [](int ranks) {
    const Assembly assembly(tiny_recipe({"batch.global=" + std::to_string(4 * ranks)}, data_parallel(ranks)),
                            plugins());
    return needs_of_host(assembly, plugins());
  };
  const HostShare two = needs(2), three = needs(3);
  EXPECT_GT(three.threads, two.threads);
  EXPECT_EQ(three.shared_bytes, two.shared_bytes / 2 * 3);
  EXPECT_GT(two.shared_bytes, 1 << 20);
  EXPECT_EQ(three.descriptors, two.descriptors);
}

// In one process the files of all ranks count, as open files do.
TEST(HostLimits, RanksThatAreThreadsHaveTheirFilesOpenTogether) {
  const Assembly assembly(tiny_recipe({"batch.global=16"}, data_parallel(4)), plugins());
  const std::int64_t process = needs_of_host(assembly, plugins()).descriptors,
                     threads = needs_of_threads(assembly, plugins()).descriptors;
  EXPECT_GT(threads, process);
  EXPECT_LT(threads, 4 * process);
}

}  // namespace
}  // namespace prun::test::host_limits_test
