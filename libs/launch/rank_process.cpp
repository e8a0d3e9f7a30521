// Between fork and exec a child may only make system calls: all it needs is prepared before.
#include "launch/rank_process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/text.hpp"
#include "launch/limits.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

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

}  // namespace prun
