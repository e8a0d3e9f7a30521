// Lists the signals that ask a run to end, and which of them this process handles.
#pragma once

#include <chrono>
#include <csignal>
#include <vector>

namespace prun {

// A closed terminal sends SIGHUP; batch systems send SIGUSR1 and SIGTERM before a time limit; the system
// sends SIGXCPU at a limit on processor time.
inline constexpr int stop_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGXCPU};

// Is how long no rank may get on in its step once a run was asked to end: none comes to where it would stop.
inline constexpr std::chrono::seconds stop_patience{30};

inline bool is_ignored(int signal) {
  struct sigaction now {};
  return sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

// Returns the signals that are handled. Those that this process was started to ignore (by nohup, `trap ''`,
// or a shell that starts it in the background of a script) stay ignored, here and in its ranks, which inherit
// that.
inline std::vector<int> heard_stop_signals() {
  std::vector<int> heard;
  for (const int signal : stop_signals)
    if (!is_ignored(signal)) heard.push_back(signal);
  return heard;
}

// Says whether a rank that ended with this code says that it was stopped.
inline bool is_stop_code(int code) {
  for (const int signal : stop_signals)
    if (code == 128 + signal) return true;
  return false;
}

}  // namespace prun
