// Signals that ask a run to end, as a wish: it ends at the next step border. A second SIGINT ends the process
// at once; any other that follows changes nothing (a time limit repeats its own every second).
#pragma once

#include <memory>

#include "launch/stop_signals.hpp"

namespace prun {

class StopSignal {
 public:
  StopSignal();   // installs the handlers; one at a time
  ~StopSignal();  // puts the old ones back
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // The first that came, or 0.
  int received() const;

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;
};

}  // namespace prun
