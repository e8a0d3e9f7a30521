// The folder for shared memory goes with its process, in good order or by SIGKILL.
#include "launch/shared_folder.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "launch/rank_process.hpp"
#include "support/temp_folder.hpp"

namespace prun::shared_folder_test {
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

// Of that process, ended ones that nobody has reaped included.
std::set<pid_t> removers_of(pid_t parent) {
  std::set<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    int pid = 0, its_parent = 0;
    char name[64] = "", state = 0;
    std::ifstream file(entry.path() / "stat");
    std::string line;
    std::getline(file, line);
    if (std::sscanf(line.c_str(), "%d (%63[^)]) %c %d", &pid, name, &state, &its_parent) == 4 &&
        its_parent == parent && std::string(name) == "prun-remover")
      found.insert(pid);
  }
  return found;
}

bool comes_true(const std::function<bool()>& what) {
  for (int i = 0; i < 15'000 && !what(); ++i) ::usleep(2000);
  return what();
}

TEST(SharedFolder, ARemoverThatIsKilledIsReapedAndAnotherTakesItsPlace) {
  std::string path;
  {
    const SharedFolder folder;
    path = folder.path();
    if (path.empty()) GTEST_SKIP() << "nothing can be written to /dev/shm";
    put_something_into(path);
    for (int times = 0; times < 3; ++times) {
      ASSERT_TRUE(comes_true([] { return removers_of(::getpid()).size() == 1; }));
      const pid_t killed = *removers_of(::getpid()).begin();
      ASSERT_EQ(::kill(killed, SIGKILL), 0);
      EXPECT_TRUE(comes_true([&] {
        const std::set<pid_t> now = removers_of(::getpid());
        return now.size() == 1 && !now.contains(killed);
      })) << "time "
          << times;
      EXPECT_TRUE(fs::exists(path + "/segment"));
    }
  }
  EXPECT_FALSE(fs::exists(path));
  EXPECT_TRUE(removers_of(::getpid()).empty());
}

// A process that has a folder, which it says, and whatever it was started with.
struct Owner {
  pid_t pid = -1;
  std::string folder;
};

Owner start_owner(const std::string& parent) {
  int ends[2];
  if (::pipe(ends) != 0) return {};
  const pid_t child = ::fork();
  if (child == 0) {
    const SharedFolder folder(parent);
    if (!folder.path().empty()) put_something_into(folder.path());
    const std::string said = folder.path() + "\n";
    if (::write(ends[1], said.data(), said.size()) < 0) ::_exit(1);
    for (;;) ::pause();
  }
  char path[256] = {};
  EXPECT_GT(::read(ends[0], path, sizeof path - 1), 0);
  for (const int fd : ends) ::close(fd);
  EXPECT_TRUE(comes_true([&] { return removers_of(child).size() == 1; }));
  return {child, std::string(path).substr(0, std::string(path).find('\n'))};
}

void kill_whole(const Owner& owner) {
  ::kill(owner.pid, SIGSTOP);  // it starts no other remover meanwhile
  const std::set<pid_t> removers = removers_of(owner.pid);
  for (const pid_t remover : removers) ::kill(remover, SIGKILL);
  ::kill(owner.pid, SIGKILL);
  ::waitpid(owner.pid, nullptr, 0);
  for (const pid_t remover : removers)
    EXPECT_TRUE(comes_true([&] {
      const char state = process_state(remover);
      return state == 0 || state == 'Z';
    }));
}

TEST(SharedFolder, TheNextOneRemovesWhatTheDeadHaveLeftAndLeavesTheOthers) {
  const test::TempFolder temp;
  const std::string parent = temp.path();
  const Owner lives = start_owner(parent), dies = start_owner(parent), paused = start_owner(parent);
  kill_whole(dies);
  ::kill(paused.pid, SIGSTOP);
  EXPECT_TRUE(fs::exists(dies.folder + "/segment"));
  const SharedFolder next(parent);
  EXPECT_FALSE(fs::exists(dies.folder));
  for (const Owner& owner : {lives, paused}) {
    EXPECT_TRUE(fs::exists(owner.folder + "/segment"));
    kill_whole(owner);
  }
  remove_dead_shared_folders(parent);
  for (const Owner& owner : {lives, paused}) EXPECT_FALSE(fs::exists(owner.folder));
  EXPECT_TRUE(fs::exists(next.path()));
}

// Nobody removes what another has made and not locked yet, but for that one to notice.
TEST(SharedFolder, ManyStartsAtOnceKeepTheirFolders) {
  std::vector<std::thread> starts;
  std::atomic<int> lost = 0;
  for (int thread = 0; thread < 4; ++thread)
    starts.emplace_back([&lost] {
      for (int i = 0; i < 50; ++i) {
        const SharedFolder folder;
        remove_dead_shared_folders();
        lost += !folder.path().empty() && !fs::exists(folder.path());
      }
    });
  for (std::thread& start : starts) start.join();
  EXPECT_EQ(lost, 0);
}

}  // namespace
}  // namespace prun::shared_folder_test
