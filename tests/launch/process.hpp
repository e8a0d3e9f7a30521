// A program that runs while a test watches it: its output, its end, signals to it.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/durable_file.hpp"
#include "launch/stop_signals.hpp"

namespace prun::test {

using Clock = std::chrono::steady_clock;
using Variables = std::vector<std::pair<std::string, std::string>>;

// Seconds for what takes less than a few on a machine that has nothing else to do.
inline constexpr double patience = 240;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Never to everybody, whom -1 would mean: so a process that was not found is no danger.
inline bool send_signal(pid_t pid, int number) { return pid > 0 && ::kill(pid, number) == 0; }

// Tests that a script has put in the background are started to ignore SIGINT; what they start is not.
inline void hear_stop_signals() {
  for (const int signal : stop_signals) ::signal(signal, SIG_DFL);
}

class Process {
 public:
  // The launch_rank program, with nothing in its environment but these variables.
  explicit Process(const std::vector<std::string>& arguments, const Variables& variables = {}) {
    std::vector<std::string> texts = {PRUN_TEST_RANK}, settings;
    texts.insert(texts.end(), arguments.begin(), arguments.end());
    for (const auto& [name, value] : variables) settings.push_back(name + "=" + value);
    const std::vector<char*> argv = pointers(texts), envp = pointers(settings);
    int ends[2], begun[2];
    if (::pipe2(ends, O_CLOEXEC) != 0 || ::pipe2(begun, O_CLOEXEC) != 0) std::abort();
    output_ = FileDescriptor(ends[0]);
    const FileDescriptor write_end(ends[1]), begins(begun[0]);
    FileDescriptor until_it_runs(begun[1]);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    hold(1 << 20);  // a test that does not get a core for a while loses no line
    pid_ = ::fork();
    if (pid_ != 0) {
      // Until it is the program, with its name and environment.
      until_it_runs = FileDescriptor();
      char none;
      while (::read(begins.get(), &none, 1) < 0 && errno == EINTR) continue;
      return;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    hear_stop_signals();
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  ~Process() {
    if (pid_ <= 0 || status_) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Process(Process&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)),
        output_(std::move(other.output_)),
        text_(std::move(other.text_)),
        status_(other.status_) {}
  Process& operator=(Process&&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const { send_signal(pid_, number); }

  // How much it may write before somebody reads; as much as there is where the system allows no more.
  void hold(int bytes) const { ::fcntl(output_.get(), F_SETPIPE_SZ, bytes); }

  // Until it has taken the signal that was sent last; false after the limit.
  bool has_taken(int number) const {
    for (const auto start = Clock::now(); seconds_since(start) < patience; ::usleep(2000))
      if (!is_pending(number)) return true;
    return false;
  }

  // Everything it and its children have written so far.
  const std::string& output() {
    char buffer[4096];
    for (ssize_t count; (count = ::read(output_.get(), buffer, sizeof buffer)) > 0;)
      text_.append(buffer, static_cast<std::size_t>(count));
    return text_;
  }

  // Until the text has been written `times` times; false after the limit.
  bool says(const std::string& what, int times = 1, double limit = patience) {
    for (const auto start = Clock::now(); seconds_since(start) < limit;) {
      int seen = 0;
      const std::string& all = output();
      for (std::size_t at = 0; (at = all.find(what, at)) != std::string::npos; at += what.size()) ++seen;
      if (seen >= times) return true;
      pollfd entry{output_.get(), POLLIN, 0};
      ::poll(&entry, 1, 10);
    }
    return false;
  }

  // Its exit code, or 1000 + the signal that killed it; -1 when it runs on.
  int end(double limit = patience) {
    for (const auto start = Clock::now(); !status_ && seconds_since(start) < limit; ::usleep(2000)) {
      output();  // so that it does not block
      int status = 0;
      if (::waitpid(pid_, &status, WNOHANG) == pid_)
        status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    }
    output();
    return status_.value_or(-1);
  }

  // What follows `mark` in its output, as a number.
  int number_after(const std::string& mark) {
    const std::size_t at = output().find(mark);
    return at == std::string::npos ? -1 : std::atoi(text_.c_str() + at + mark.size());
  }

 private:
  static std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> out;
    for (std::string& text : texts) out.push_back(text.data());
    out.push_back(nullptr);
    return out;
  }

  bool is_pending(int number) const {
    std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
    for (std::string word, mask; status >> word;)
      if (word == "ShdPnd:" && status >> mask) return std::stoull(mask, nullptr, 16) >> (number - 1) & 1;
    return false;
  }

  pid_t pid_ = -1;
  FileDescriptor output_;
  std::string text_;
  std::optional<int> status_;
};

}  // namespace prun::test
