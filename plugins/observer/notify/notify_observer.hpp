// Runs one command for each end of a run. A shell beside the run waits to hear of it: so nothing here waits
// for the command, and a process that is killed is noticed as well, by its silence.
#pragma once

#include <string>
#include <string_view>

#include "prun/observer.hpp"

namespace prun::notify {

class NotifyObserver final : public Observer {
 public:
  explicit NotifyObserver(const Options& options) : NotifyObserver(options.text("command")) {}
  explicit NotifyObserver(std::string command) : command_(std::move(command)) {}
  ~NotifyObserver() override;
  NotifyObserver(const NotifyObserver&) = delete;
  NotifyObserver& operator=(const NotifyObserver&) = delete;

  // Throws only where no shell can be started; nobody looks at what happens to it later.
  void start(const RunInfo& info) override;
  void step(const StepInfo& info) override;
  void event(EventKind kind, std::string_view message) override;
  void finish(const FinishInfo& info) override;

 private:
  void tell(std::string_view event, std::string_view message) const;

  std::string command_;
  int word_ = -1;  // is our end of the shell's standard input
  std::int64_t step_ = 0;
  double loss_ = 0;
  bool stopped_ = false;
};

}  // namespace prun::notify
