#include "train/stop_signal.hpp"

#include <unistd.h>
#include <csignal>

namespace prun {
namespace {

// A signal handler can reach nothing else.
volatile std::sig_atomic_t stop_requested = 0;

void on_signal(int signal) {
  if (stop_requested != 0) _exit(128 + signal);
  stop_requested = signal;
}

}  // namespace

struct StopSignal::Saved {
  struct sigaction interrupt, terminate;
};

StopSignal::StopSignal() : saved_(std::make_unique<Saved>()) {
  stop_requested = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, &saved_->interrupt);
  sigaction(SIGTERM, &action, &saved_->terminate);
}

StopSignal::~StopSignal() {
  sigaction(SIGINT, &saved_->interrupt, nullptr);
  sigaction(SIGTERM, &saved_->terminate, nullptr);
}

int StopSignal::received() const { return stop_requested; }

}  // namespace prun
