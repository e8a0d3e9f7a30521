#include "train/stop_signal.hpp"

#include <unistd.h>

#include <utility>
#include <vector>

namespace prun {
namespace {

// A signal handler can reach nothing else.
volatile std::sig_atomic_t stop_requested = 0;

void on_signal(int signal) {
  if (stop_requested == 0)
    stop_requested = signal;
  else if (signal == SIGINT)
    _exit(128 + signal);
}

}  // namespace

struct StopSignal::Saved {
  std::vector<std::pair<int, struct sigaction>> actions;
};

StopSignal::StopSignal() : saved_(std::make_unique<Saved>()) {
  stop_requested = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (const int signal : heard_stop_signals()) {
    struct sigaction before {};
    sigaction(signal, &action, &before);
    saved_->actions.emplace_back(signal, before);
  }
}

StopSignal::~StopSignal() {
  for (const auto& [signal, before] : saved_->actions) sigaction(signal, &before, nullptr);
}

int StopSignal::received() const { return stop_requested; }

}  // namespace prun
