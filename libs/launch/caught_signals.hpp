// Catches the signals that stop a run, in a descriptor that a loop can wait for.
#pragma once

#include <signal.h>

#include "base/durable_file.hpp"

namespace prun {

// Has signals that stop a run arrive in a descriptor while this lives.
class CaughtSignals {
 public:
  CaughtSignals();
  // A signal that comes when all is over must not change how the launcher ends.
  ~CaughtSignals();
  CaughtSignals(const CaughtSignals&) = delete;
  CaughtSignals& operator=(const CaughtSignals&) = delete;

  int fd() const { return fd_.get(); }
  const sigset_t& mask_before() const { return before_; }
  // Returns the next signal, or 0.
  int take();

 private:
  sigset_t before_{};
  FileDescriptor fd_;
};

}  // namespace prun
