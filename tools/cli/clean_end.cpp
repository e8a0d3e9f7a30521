#include "cli/clean_end.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "base/durable_file.hpp"
#include "base/thread.hpp"
#include "launch/stop_signals.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

// A shell lets a command in the background ignore some signals; their sender means them all the same.
sigset_t heard_signals() {
  sigset_t heard;
  sigemptyset(&heard);
  for (const int signal : heard_stop_signals()) {
    sigaddset(&heard, signal);
    std::signal(signal, SIG_DFL);
  }
  return heard;
}

}  // namespace

CleanEnd::CleanEnd() {
  const sigset_t heard = heard_signals();
  ::pthread_sigmask(SIG_BLOCK, &heard, &before_);
  signals_ = FileDescriptor(::signalfd(-1, &heard, SFD_CLOEXEC));
  over_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC));
  if (!signals_.is_open() || !over_.is_open()) throw_storage_error("open", "a watch for signals", errno);
  thread_ = start_thread<std::jthread>("signals", [this] { watch(); });
}

CleanEnd::~CleanEnd() {
  (void)::eventfd_write(over_.get(), 1);
  thread_.join();
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void CleanEnd::watch() const {
  for (;;) {
    pollfd either[2] = {{signals_.get(), POLLIN, 0}, {over_.get(), POLLIN, 0}};
    if (::poll(either, 2, -1) < 0) continue;
    signalfd_siginfo came{};
    if (either[0].revents != 0 && ::read(signals_.get(), &came, sizeof came) == sizeof came) {
      remove_what_is_unfinished();
      _exit(128 + static_cast<int>(came.ssi_signo));
    }
    if (either[1].revents != 0) return;
  }
}

void write_cleanly(const std::filesystem::path& target, std::string_view text, const OutputKind& kind) {
  const CleanEnd clean;
  write_output(target, text, kind);
}

}  // namespace prun
