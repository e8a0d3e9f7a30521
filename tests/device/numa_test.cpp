// Which NUMA node a PCI device is at, and that memory is asked for there.
#include "host/numa.hpp"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

#include "support/temp_folder.hpp"

namespace prun::test {
namespace {

TEST(Numa, TheNodeStandsBesideTheDevice) {
  const TempFolder folder;
  folder.write("0000:1b:00.0/numa_node", "1\n");
  folder.write("0000:1c:00.0/numa_node", "-1\n");
  EXPECT_EQ(host::numa_node_of("0000:1B:00.0", folder.path()), 1);
  EXPECT_EQ(host::numa_node_of("0000:1C:00.0", folder.path()), -1);
  EXPECT_EQ(host::numa_node_of("0000:1D:00.0", folder.path()), -1);
}

// On a thread of its own, which takes its policy with it.
TEST(Numa, MemoryIsPreferredThere) {
  bool allowed = false;
  int policy = -1;
  unsigned long nodes = 0;
  std::thread([&] {
    allowed = host::prefer_numa_node(0);
    ::syscall(SYS_get_mempolicy, &policy, &nodes, 8 * sizeof nodes, nullptr, 0);
  }).join();
  if (!allowed) GTEST_SKIP() << "the system does not allow it";
  EXPECT_EQ(policy, MPOL_PREFERRED);
  EXPECT_EQ(nodes, 1ul);
}

TEST(Numa, NoNodeIsNone) {
  EXPECT_FALSE(host::prefer_numa_node(-1));
  EXPECT_FALSE(host::prefer_numa_node(64));
}

}  // namespace
}  // namespace prun::test
