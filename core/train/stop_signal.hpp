// SIGINT and SIGTERM as a wish: the run ends at the next step border. A second SIGINT ends the process at
// once.
#pragma once

#include <memory>

namespace prun {

class StopSignal {
 public:
  StopSignal();   // installs the handlers; one at a time
  ~StopSignal();  // puts the old ones back
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // The signal that came, or 0.
  int received() const;

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;
};

}  // namespace prun
