// The folder for shared memory goes with its process, in good order or by SIGKILL.
#include "launch/shared_folder.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

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

// A process that has a folder and is killed. `heir` runs in a process that outlives it. The folder; empty:
// there is none.
std::string folder_of_killed(const std::function<void(const std::string& folder)>& heir) {
  int ends[2];
  if (::pipe(ends) != 0) return "";
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("PATH", "/nowhere", 1);  // no other program is needed for it
    const SharedFolder folder;
    if (!folder.path().empty()) put_something_into(folder.path());
    std::string said = folder.path() + "\n";
    if (::fork() == 0) {
      ::close_range(STDERR_FILENO + 1, ~0u,
                    0);  // as a program of its own, which keeps the remover from nothing
      if (!folder.path().empty()) heir(folder.path());
      ::_exit(0);
    }
    if (::write(ends[1], said.data(), said.size()) < 0) ::_exit(1);
    for (;;) ::pause();
  }
  char path[256] = {};
  EXPECT_GT(::read(ends[0], path, sizeof path - 1), 0);
  ::kill(child, SIGKILL);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  for (const int fd : ends) ::close(fd);
  return std::string(path).substr(0, std::string(path).find('\n'));
}

bool is_gone_in_time(const std::string& folder) {
  for (int i = 0; i < 15'000 && fs::exists(folder); ++i) ::usleep(2000);
  return !fs::exists(folder);
}

TEST(SharedFolder, IsGoneWhenItsProcessIsKilled) {
  const std::string folder = folder_of_killed([](const std::string&) {});
  if (folder.empty()) GTEST_SKIP() << "nothing can be written to /dev/shm";
  EXPECT_TRUE(is_gone_in_time(folder));
}

// As a rank that has not noticed yet that its launcher is gone: it keeps the folder in use for two seconds.
TEST(SharedFolder, IsGoneWhenAnotherProcessStillPutsSomethingInForAWhile) {
  const std::string folder = folder_of_killed([](const std::string& path) {
    const std::string inside = path + "/more";
    for (int i = 0; i < 200; ++i) {
      ::mkdir(inside.c_str(), 0700);  // the remover takes files away, not folders
      ::usleep(10'000);
    }
    ::rmdir(inside.c_str());
  });
  if (folder.empty()) GTEST_SKIP() << "nothing can be written to /dev/shm";
  EXPECT_TRUE(is_gone_in_time(folder));
}

}  // namespace
}  // namespace prun
