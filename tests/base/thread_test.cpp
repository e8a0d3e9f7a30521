// Work that several threads share out.
#include "base/thread.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "support/sanitized.hpp"

namespace prun::test::thread_test {
namespace {

constexpr std::size_t many = 64;

TEST(ShareOut, TellsWhatGoesWrongFirstAndBeginsNothingAfterIt) {
  std::atomic<int> begun = 0;
  try {
    share_out(4, 100000, [&](std::size_t, std::size_t i) {
      ++begun;
      if (i == 5) throw_error(ErrorCode::storage, "the sixth");
      if (i > 5) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // it may have to wait for a core
    });
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the sixth");
  }
  EXPECT_LT(begun, 100000);
}

// Exit code 0: all was done, each once, by some threads and not by as many as were asked for.
int share_out_with_few_addresses() {
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const auto size = static_cast<rlim_t>(pages * ::sysconf(_SC_PAGESIZE)) + (rlim_t{4} << 20);
  const rlimit limit{size, size};
  if (::setrlimit(RLIMIT_AS, &limit) != 0) return 2;
  std::array<std::atomic<int>, many> done{};
  std::mutex mutex;
  std::set<std::thread::id> threads;
  share_out(many, many, [&](std::size_t, std::size_t i) {
    ++done[i];
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const std::scoped_lock lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  for (const auto& times : done)
    if (times != 1) return 3;
  return threads.size() < many ? 0 : 4;
}

TEST(ShareOut, DoesAllOfItWithAsManyThreadsAsThereAre) {
  if (sanitized) GTEST_SKIP() << "a sanitizer takes addresses of its own";
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      ::_exit(share_out_with_few_addresses());
    } catch (const Error&) {
      ::_exit(5);
    }
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace prun::test::thread_test
