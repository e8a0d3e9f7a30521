// Handles signals that ask a run to end. Before its first step there is nothing to save and a rank may be
// waiting for the others: they end the process at once. From then on they are a request: the run ends at the
// next step border. A second SIGINT ends the process at once; any other that follows changes nothing (a time
// limit repeats its own every second).
#pragma once

#include <memory>
#include <string>

#include "launch/stop_signals.hpp"

namespace prun {

// Sets handlers for the stop signals that this process handles, as long as this lives; the old ones come back
// then.
class StopHandlers {
 public:
  explicit StopHandlers(void (*handler)(int signal));
  ~StopHandlers();
  StopHandlers(const StopHandlers&) = delete;
  StopHandlers& operator=(const StopHandlers&) = delete;

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;
};

// Ends the process with 128 + signal, whatever it is doing: also as the first process of a container, which
// the system does not end by a signal that it does not handle.
class StopAtOnce {
 public:
  StopAtOnce();

 private:
  StopHandlers handlers_;
};

class StopSignal {
 public:
  StopSignal();  // only one may live at a time

  // Returns the first signal that came, or 0. Any thread may ask.
  static int received();

 private:
  StopHandlers handlers_;
};

// Returns a text such as "SIGHUP and SIGINT were ignored when this run was started (...)"; it is empty if
// none was.
std::string ignored_stop_signals_text();

}  // namespace prun
