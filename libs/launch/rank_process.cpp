// Between fork and exec a child may only make system calls: all it needs is prepared before.
#include "launch/rank_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/text.hpp"
#include "launch/socket.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- rank process

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

// Gives an empty stdin: ranks lead groups of their own, which must not read from the terminal.
void detach_stdin() {
  const int null = ::open("/dev/null", O_RDONLY);
  if (null > 0) {
    ::dup2(null, STDIN_FILENO);
    ::close(null);
  }
}

// Writes the error number into `trouble` if the program does not run.
[[noreturn]] void become(const RankStart& start, char* const* arguments, char* const* environment,
                         pid_t launcher, int trouble) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(1);  // the launcher died before the line above
  ::setpgid(0, 0);
  detach_stdin();
  for (const int fd : start.inherited) ::fcntl(fd, F_SETFD, 0);
  if (start.cores) ::sched_setaffinity(0, sizeof *start.cores, &*start.cores);
  ::sigprocmask(SIG_SETMASK, &start.signal_mask, nullptr);
  ::execve(start.program.c_str(), arguments, environment);
  const int error = errno;
  if (::write(trouble, &error, sizeof error) < 0) ::_exit(126);
  ::_exit(127);
}

}  // namespace

RankProcess start_rank(const RankStart& start) {
  const std::vector<char*> arguments = pointers(start.arguments), environment = pointers(start.environment);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw_error(ErrorCode::unsupported, "cannot make a pipe: ", refusal_text(errno));
  const FileDescriptor read_end(ends[0]);
  FileDescriptor write_end(ends[1]);
  const pid_t launcher = ::getpid();
  RankProcess rank;
  rank.pid = ::fork();
  if (rank.pid < 0) throw_error(ErrorCode::unsupported, "cannot start a rank: ", refusal_text(errno));
  if (rank.pid == 0) become(start, arguments.data(), environment.data(), launcher, write_end.get());
  write_end = FileDescriptor();
  int error = 0;
  while (::read(read_end.get(), &error, sizeof error) < 0 && errno == EINTR) {
  }
  rank.pidfd = FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, rank.pid, 0)));
  if (error == 0 && rank.pidfd.is_open()) return rank;
  const int reason = error != 0 ? error : errno;
  ::kill(rank.pid, SIGKILL);
  ::waitpid(rank.pid, nullptr, 0);
  throw_error(ErrorCode::bad_input, "cannot run ", in_quotes(start.program), ": ", std::strerror(reason));
}

// Reads the state, which follows the program's name in parentheses; that may hold any byte.
char process_state(pid_t pid) {
  char text[512];
  std::snprintf(text, sizeof text, "/proc/%d/stat", pid);
  const FileDescriptor file(::open(text, O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return 0;
  const ssize_t count = ::read(file.get(), text, sizeof text);
  const std::string_view line(text, count > 0 ? static_cast<std::size_t>(count) : 0);
  const std::size_t close = line.rfind(')');
  return close == std::string_view::npos || close + 2 >= line.size() ? 0 : line[close + 2];
}

// ------------------------------------------------------------------- rank group

bool RankGroup::all_gone() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const LaunchedRank& rank) { return rank.status.has_value(); });
}

void RankGroup::signal(int signal) const {
  for (const LaunchedRank& rank : ranks_)
    if (!rank.status) ::kill(rank.process.pid, signal);
}

void RankGroup::kill() const {
  for (const LaunchedRank& rank : ranks_) {
    if (rank.status) continue;
    ::kill(-rank.process.pid, SIGKILL);
    ::kill(rank.process.pid, SIGKILL);
  }
}

std::vector<int> RankGroup::ended() const {
  std::vector<int> killed, ended;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].status) continue;
    siginfo_t info{};
    const auto pid = static_cast<id_t>(ranks_[i].process.pid);
    if (::waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) continue;
    (info.si_code == CLD_EXITED ? ended : killed).push_back(static_cast<int>(i));
  }
  killed.insert(killed.end(), ended.begin(), ended.end());
  return killed;
}

// Kills and reaps a rank's group: before the rank is reaped its number is still its own, and so is its
// group's, so what it started is killed with it.
std::optional<int> RankGroup::reap(int rank) {
  LaunchedRank& ended = ranks_[rank];
  ::kill(-ended.process.pid, SIGKILL);
  int status = 0;
  if (::waitpid(ended.process.pid, &status, WNOHANG) != ended.process.pid) return {};
  return ended.status = status;
}

std::vector<FlightSnapshot> RankGroup::snapshots() const {
  std::vector<FlightSnapshot> all;
  for (const LaunchedRank& rank : ranks_) all.push_back(rank.flight.snapshot());
  return all;
}

std::vector<WatchedRank> RankGroup::watched() const {
  std::vector<WatchedRank> all;
  for (const LaunchedRank& rank : ranks_) {
    const bool stopped = !rank.status && process_state(rank.process.pid) == 'T';
    all.push_back({rank.flight.snapshot(), rank.status.has_value(), stopped ? stopped_text : nullptr});
  }
  return all;
}

}  // namespace prun
