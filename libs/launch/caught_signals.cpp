#include "launch/caught_signals.hpp"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "launch/limits.hpp"
#include "launch/stop_signals.hpp"
#include "prun/error.hpp"

namespace prun {

CaughtSignals::CaughtSignals() {
  sigset_t caught;
  sigemptyset(&caught);
  for (const int signal : heard_stop_signals()) sigaddset(&caught, signal);
  ::pthread_sigmask(SIG_BLOCK, &caught, &before_);
  fd_ = FileDescriptor(::signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_.is_open()) throw_error(ErrorCode::unsupported, "cannot catch signals: ", refusal_text(errno));
}

CaughtSignals::~CaughtSignals() {
  while (take() != 0) continue;
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int CaughtSignals::take() {
  signalfd_siginfo info{};
  return ::read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

}  // namespace prun
