// Uses fork, a pipe for what the child reports, and waitpid for how it ended.
#include "conform/isolated.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/durable_file.hpp"
#include "base/sha256.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t output_limit = std::size_t{1} << 20;
// A child whose body returned sends this last: an exit code alone could also be the plugin's own.
constexpr char returned_mark = '\0';

struct Pipe {
  FileDescriptor read, write;
};

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw_error(ErrorCode::storage, "cannot make a pipe: ", std::strerror(errno));
  Pipe pipe{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return pipe;
}

void send(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) ::_exit(1);  // the parent is gone
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

// A crash must end the child by its signal: no handler of the parent's, no core file. The child ignores what
// the parent was started to ignore.
void prepare_child() {
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS, SIGPIPE})
    ::signal(signal, SIG_DFL);
  for (const int signal : {SIGTERM, SIGINT})
    if (::signal(signal, SIG_DFL) == SIG_IGN) ::signal(signal, SIG_IGN);
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::setpgid(0, 0);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);  // stdout belongs to the report
}

[[noreturn]] void run_child(int fd, const std::function<void(const Say& say)>& body) {
  prepare_child();
  body([fd](std::string_view text) { send(fd, text); });
  send(fd, std::string_view(&returned_mark, 1));
  ::_exit(0);
}

// Appends what is there; returns false at the end of the stream.
bool drain(int fd, std::string& output) {
  char buffer[4096];
  for (;;) {
    const ssize_t count = ::read(fd, buffer, sizeof buffer);
    if (count > 0 && output.size() < output_limit) output.append(buffer, static_cast<std::size_t>(count));
    if (count == 0) return false;
    if (count < 0 && errno != EINTR) return errno == EAGAIN;
  }
}

std::string describe_end(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    const char* name = ::sigabbrev_np(signal);
    const char* text = ::sigdescr_np(signal);
    return detail::concat("crashed with SIG", name ? name : std::to_string(signal).c_str(), " (",
                          text ? text : "no name", ")");
  }
  return detail::concat("ended the process itself with exit status ", WEXITSTATUS(status));
}

// Says whether the child has ended; it stays a zombie, so that its number stays its own.
bool has_ended(pid_t child) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == child;
}

// Waits while its output flows, so that the child never blocks on a full pipe. Returns false where it has
// reported nothing for longer than `limit`.
bool wait_for(pid_t child, int fd, std::string& output, std::chrono::milliseconds limit) {
  bool open = true, ended = false;
  Clock::time_point last = Clock::now();
  while (!ended && Clock::now() - last < limit) {
    pollfd entry{open ? fd : -1, POLLIN, 0};
    const bool said = ::poll(&entry, 1, 10) > 0 && open;
    if (said) last = Clock::now();
    ended = has_ended(child);
    open = open && drain(fd, output);
  }
  return ended;
}

// Ends the child if it has not ended yet, with all that it started; returns its status.
int reap(pid_t child) {
  ::kill(-child, SIGKILL);
  ::kill(child, SIGKILL);  // serves a child that did not have the time to lead its group
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

IsolatedResult run_isolated(const std::function<void(const Say& say)>& body,
                            std::chrono::milliseconds limit) {
  Pipe pipe = make_pipe();
  const pid_t child = ::fork();
  if (child < 0) throw_error(ErrorCode::storage, "cannot start a process: ", std::strerror(errno));
  if (child == 0) run_child(pipe.write.get(), body);
  pipe.write = FileDescriptor();
  IsolatedResult result;
  const bool ended = wait_for(child, pipe.read.get(), result.output, limit);
  const int status = reap(child);
  result.ending = ended ? describe_end(status) : detail::concat("took longer than ", limit.count(), " ms");
  result.returned = !result.output.empty() && result.output.back() == returned_mark;
  if (result.returned) result.output.pop_back();
  return result;
}

void check_alike_elsewhere(const char* call, const std::function<std::string()>& write) {
  const std::string here = sha256_hex(write());
  const IsolatedResult other = run_isolated(
      [&](const Say& say) {
        try {
          say(sha256_hex(write()));
        } catch (const Error& error) {
          say(error.what());
        }
      },
      std::chrono::seconds(30));
  if (!other.returned)
    throw_error(ErrorCode::bad_input, call, " in another process: the plugin ", other.ending);
  if (other.output != here)
    throw_error(ErrorCode::bad_input, call,
                " writes another program in another process; it must be the same for the same options, since "
                "every rank writes it");
}

}  // namespace prun
