// Which signals stop a run: launcher and ranks hear the same.
#pragma once

#include <csignal>
#include <vector>

namespace prun {

// SIGHUP is what a closed terminal sends, SIGUSR1 and SIGTERM what batch systems send ahead of a time limit,
// SIGXCPU what the system sends at a limit on processor time.
inline constexpr int stop_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGXCPU};

// Those that this process is to hear. What it was started to ignore (nohup) stays ignored; but a shell lets
// all that it starts in the background ignore SIGINT, and who sends that still means it.
inline std::vector<int> heard_stop_signals() {
  std::vector<int> heard;
  for (const int signal : stop_signals) {
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    if (signal == SIGINT || now.sa_handler != SIG_IGN) heard.push_back(signal);
  }
  return heard;
}

// Whether a rank that ended with this code says that it was stopped.
inline bool is_stop_code(int code) {
  for (const int signal : stop_signals)
    if (code == 128 + signal) return true;
  return false;
}

}  // namespace prun
