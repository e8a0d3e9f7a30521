// Memory of the host as devices hand it out, and how much of it there is.
#include "host/host_memory.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <string_view>

#include "prun/error.hpp"
#include "support/sanitized.hpp"
#include "support/temp_folder.hpp"

namespace prun::test {
namespace {

constexpr std::int64_t gib = std::int64_t{1} << 30;

std::string failure_of(auto&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    return error.what();
  }
  return "";
}

TEST(HostMemory, SaysSoWhenTheSystemRefuses) {
  constexpr std::int64_t more_than_any_address_space = std::int64_t{1} << 60;
  EXPECT_NE(failure_of([] { host::map_memory(more_than_any_address_space); }).find("bytes of memory"),
            std::string::npos);
}

// Of the process: anonymous and set aside.
std::int64_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  std::int64_t bytes = 0;
  for (std::string line; std::getline(status, line);)
    for (const std::string_view key : {"RssAnon:", "HugetlbPages:"})
      if (line.starts_with(key)) bytes += std::stoll(line.substr(key.size())) * 1024;
  return bytes;
}

// What plans state is what is resident: a range that ends within a huge page is not rounded up to it.
TEST(HostMemory, TakesNoMoreThanWasAskedFor) {
  if (sanitized) GTEST_SKIP() << "a sanitizer's shadow memory counts as ours";
  constexpr std::int64_t slack = std::int64_t{256} << 10;  // pages that the allocator of this test touches
  for (const std::int64_t bytes : {gib / 512 + 4096, gib / 8 + 1, gib + 4096}) {
    const std::int64_t before = resident_bytes();
    void* const memory = host::map_memory(bytes);
    const std::int64_t taken = resident_bytes() - before;
    EXPECT_GE(taken, bytes - slack);
    EXPECT_LE(taken, bytes + slack);
    host::unmap_memory(memory, bytes);
    EXPECT_LE(resident_bytes(), before + slack);
  }
}

// Large memory is whole huge pages but for its end; what it says of them is what the system counts.
TEST(HostMemory, LiesInHugePagesOrSaysSo) {
  const std::optional<std::int64_t> before = host::bytes_in_huge_pages();
  if (!before) GTEST_SKIP() << "the system does not count huge pages";
  constexpr std::int64_t bytes = gib + 4096;
  std::string note = "not asked";
  void* const memory = host::map_memory(bytes, &note);
  const std::int64_t huge = *host::bytes_in_huge_pages() - *before;
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % (2 << 20), 0u);
  EXPECT_EQ(note.find("small pages") == std::string::npos, huge >= bytes / 10 * 9) << note;
  host::unmap_memory(memory, bytes);
  EXPECT_LT(*host::bytes_in_huge_pages(), *before + bytes / 2);
}

TEST(HostMemory, SaysHowMuchOfItLiesInSmallPages) {
  EXPECT_EQ(host::small_pages_text(gib - 1, 0), "");
  EXPECT_EQ(host::small_pages_text(10 * gib, 9 * gib), "");
  EXPECT_EQ(host::small_pages_text(10 * gib, 4 * gib).substr(0, 45),
            "6 of 10 GiB of host memory lie in small pages");
}

TEST(HostMemory, SaysWhatTookLong) {
  EXPECT_EQ(host::long_time_text("getting", gib, 1.9), "");
  EXPECT_EQ(host::long_time_text("getting", 3 * gib / 2, 12.34),
            "getting 1.5 GiB of host memory took 12.3 s");
  std::string note;
  for (const char* more : {"", "one", "", "other"}) host::add_note(note, more);
  EXPECT_EQ(note, "one; other");
}

TEST(HostMemory, CountsHugePagesOfBothKinds) {
  const TempFolder root;
  EXPECT_FALSE(host::bytes_in_huge_pages(root.path()));
  root.write("proc/self/smaps_rollup",
             "5581-7ffe ---p 00000000 00:00 0 [rollup]\nRss: 9 kB\nAnonHugePages:   4096 kB\n"
             "Shared_Hugetlb: 7 kB\nPrivate_Hugetlb:  2048 kB\n");
  EXPECT_EQ(host::bytes_in_huge_pages(root.path()), 6 << 20);
}

// A tree of proc and sys files that says what a test wants.
class FakeSystem : public TempFolder {
 public:
  FakeSystem() { write("proc/meminfo", "MemTotal:       1000 kB\nMemFree: 1 kB\n"); }
  std::int64_t limit(std::int64_t said = 0) const { return host::memory_limit(said, path()); }
};

TEST(MemoryLimit, IsTheMachinesWithoutAControlGroup) {
  const FakeSystem system;
  EXPECT_EQ(system.limit(), 1'024'000);
  system.write("proc/self/cgroup", "0::/job\n");
  system.write("sys/fs/cgroup/job/memory.max", "max\n");
  EXPECT_EQ(system.limit(), 1'024'000);
}

TEST(MemoryLimit, IsTheLeastOfAllGroupsAbove) {
  const FakeSystem system;
  system.write("proc/self/cgroup", "0::/outer/inner\n");
  system.write("sys/fs/cgroup/outer/inner/memory.max", "900000\n");
  EXPECT_EQ(system.limit(), 900'000);
  system.write("sys/fs/cgroup/outer/memory.max", "800000\n");
  EXPECT_EQ(system.limit(), 800'000);
}

TEST(MemoryLimit, KnowsTheFirstVersionAndContainers) {
  const FakeSystem system;
  system.write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:hugetlb,memory:/out/of/sight\n0::/\n");
  system.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(system.limit(), 1'024'000);
  system.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "700000\n");
  EXPECT_EQ(system.limit(), 700'000);
}

TEST(MemoryLimit, IsAnErrorWhenTheMachineDoesNotSay) {
  const FakeSystem system;
  system.write("proc/meminfo", "nothing\n");
  EXPECT_NE(failure_of([&] { system.limit(); }).find("MemTotal"), std::string::npos);
}

// Where the machine grows, or will; what its control group allows holds all the same.
TEST(MemoryLimit, IsWhatWasSaidWithinTheGroups) {
  const FakeSystem system;
  EXPECT_EQ(system.limit(5'000'000), 5'000'000);
  system.write("proc/self/cgroup", "0::/job\n");
  system.write("sys/fs/cgroup/job/memory.max", "4000000\n");
  EXPECT_EQ(system.limit(5'000'000), 4'000'000);
}

}  // namespace
}  // namespace prun::test
