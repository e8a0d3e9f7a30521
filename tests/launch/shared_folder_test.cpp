// The folder for shared memory goes with its process, in good order or by SIGKILL.
#include "launch/shared_folder.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace prun {
namespace {

namespace fs = std::filesystem;

void put_something_into(const std::string& folder) { std::ofstream(folder + "/segment") << "bytes"; }

TEST(SharedFolder, IsGoneAfterwards) {
  std::string path;
  {
    const SharedFolder folder;
    path = folder.path();
    if (path.empty()) GTEST_SKIP() << "nothing can be written to /dev/shm";
    put_something_into(path);
    EXPECT_TRUE(fs::exists(path + "/segment"));
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(SharedFolder, IsGoneWhenItsProcessIsKilled) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("PATH", "/nowhere", 1);  // no other program is needed for it
    const SharedFolder folder;
    if (!folder.path().empty()) put_something_into(folder.path());
    std::string said = folder.path() + "\n";
    if (::write(ends[1], said.data(), said.size()) < 0) ::_exit(1);
    for (;;) ::pause();
  }
  char path[256] = {};
  ASSERT_GT(::read(ends[0], path, sizeof path - 1), 0);
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  for (const int fd : ends) ::close(fd);
  const std::string folder = std::string(path).substr(0, std::string(path).find('\n'));
  if (folder.empty()) GTEST_SKIP() << "nothing can be written to /dev/shm";
  for (int i = 0; i < 1000 && fs::exists(folder); ++i) ::usleep(2000);
  EXPECT_FALSE(fs::exists(folder));
}

}  // namespace
}  // namespace prun
