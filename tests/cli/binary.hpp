// Starts prun as a user does.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "launch/stop_signals.hpp"
#include "prun/error.hpp"

namespace prun::test {

struct Result {
  int code = -1;
  std::string out;
  std::int64_t peak_bytes = 0;  // of the largest of its processes, as the system counts it
};

// Runs a program; when `signal` is not 0, sends it as soon as `until` shows up in the output.
inline Result run_program(std::vector<std::string> all, int signal = 0, const std::string& until = "") {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) throw_error(ErrorCode::internal, "pipe");
  const pid_t child = fork();
  if (child == 0) {
    // As from a terminal, though a script may have put the tests in the background.
    for (const int stop : stop_signals) ::signal(stop, SIG_DFL);
    dup2(pipe_ends[1], 1);
    dup2(pipe_ends[1], 2);
    close(pipe_ends[0]);
    std::vector<char*> argv;
    for (std::string& word : all) argv.push_back(word.data());
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(pipe_ends[1]);
  Result result;
  char buffer[4096];
  for (ssize_t n; (n = read(pipe_ends[0], buffer, sizeof buffer)) > 0;) {
    result.out.append(buffer, static_cast<std::size_t>(n));
    if (signal != 0 && result.out.find(until) != std::string::npos) {
      kill(child, signal);
      signal = 0;
    }
  }
  close(pipe_ends[0]);
  int status = 0;
  struct rusage usage {};
  wait4(child, &status, 0, &usage);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  result.peak_bytes = usage.ru_maxrss * 1024;
  return result;
}

inline Result prun(const std::vector<std::string>& words, int signal = 0, const std::string& until = "") {
  std::vector<std::string> all = {PRUN_TEST_BINARY};
  all.insert(all.end(), words.begin(), words.end());
  return run_program(all, signal, until);
}

// One that goes on while the test does something else; what it says is thrown away.
class StartedPrun {
 public:
  explicit StartedPrun(const std::vector<std::string>& words) : pid_(fork()) {
    if (pid_ != 0) return;
    std::vector<std::string> all = {PRUN_TEST_BINARY};
    all.insert(all.end(), words.begin(), words.end());
    std::vector<char*> argv;
    for (std::string& word : all) argv.push_back(word.data());
    argv.push_back(nullptr);
    const int nowhere = open("/dev/null", O_RDWR);
    for (const int fd : {0, 1, 2}) dup2(nowhere, fd);
    execv(argv[0], argv.data());
    _exit(127);
  }
  ~StartedPrun() {
    if (!is_over()) kill(pid_, SIGKILL);
    wait();
  }
  StartedPrun(const StartedPrun&) = delete;
  StartedPrun& operator=(const StartedPrun&) = delete;

  void send(int signal) const { kill(pid_, signal); }
  bool is_over() {
    if (!code_ && waitpid(pid_, &status_, WNOHANG) == pid_) note();
    return code_.has_value();
  }
  // The exit code, or the number of the signal that ended it, negative.
  int wait() {
    if (!code_ && waitpid(pid_, &status_, 0) == pid_) note();
    return code_.value_or(-1);
  }

 private:
  void note() { code_ = WIFEXITED(status_) ? WEXITSTATUS(status_) : -WTERMSIG(status_); }

  pid_t pid_;
  int status_ = 0;
  std::optional<int> code_;
};

// A line for the shell, in which $PRUN is the program.
inline Result shell(const std::string& line) {
  return run_program({"/bin/sh", "-c", "PRUN=" PRUN_TEST_BINARY "; " + line});
}

}  // namespace prun::test
