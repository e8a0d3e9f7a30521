#include "train/loop/stop_signal.hpp"

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

namespace prun {
namespace {

// A signal handler can reach nothing else.
std::atomic<int> stop_requested = 0;
static_assert(std::atomic<int>::is_always_lock_free);

void note_request(int signal) {
  int none = 0;
  if (!stop_requested.compare_exchange_strong(none, signal) && signal == SIGINT) _exit(128 + signal);
}

[[noreturn]] void end_at_once(int signal) { _exit(128 + signal); }

std::string name_of(int signal) { return std::string("SIG") + ::sigabbrev_np(signal); }

// Returns a text such as "SIGINT, SIGHUP and SIGUSR1".
std::string names_of(const std::vector<int>& signals) {
  std::string text;
  for (std::size_t i = 0; i < signals.size(); ++i)
    text += (i == 0 ? "" : i + 1 == signals.size() ? " and " : ", ") + name_of(signals[i]);
  return text;
}

}  // namespace

struct StopHandlers::Saved {
  std::vector<std::pair<int, struct sigaction>> actions;
};

StopHandlers::StopHandlers(void (*handler)(int signal)) : saved_(std::make_unique<Saved>()) {
  struct sigaction action {};
  action.sa_handler = handler;
  for (const int signal : heard_stop_signals()) {
    struct sigaction before {};
    sigaction(signal, &action, &before);
    saved_->actions.emplace_back(signal, before);
  }
}

StopHandlers::~StopHandlers() {
  for (const auto& [signal, before] : saved_->actions) sigaction(signal, &before, nullptr);
}

StopAtOnce::StopAtOnce() : handlers_(end_at_once) {}

StopSignal::StopSignal() : handlers_((stop_requested = 0, note_request)) {}

int StopSignal::received() { return stop_requested; }

std::string ignored_stop_signals_text() {
  std::vector<int> ignored;
  for (const int signal : stop_signals)
    if (is_ignored(signal)) ignored.push_back(signal);
  if (ignored.empty()) return {};
  const std::vector<int> heard = heard_stop_signals();
  return names_of(ignored) + (ignored.size() > 1 ? " were" : " was") +
         " ignored when this run was started (nohup, a script's `&` and trap '' do that) and " +
         (ignored.size() > 1 ? "stay" : "stays") + " ignored; " +
         (heard.empty() ? "no signal stops and saves it"
                        : names_of(heard) + (heard.size() > 1 ? " stop" : " stops") + " and save" +
                              (heard.size() > 1 ? "" : "s") + " it");
}

}  // namespace prun
