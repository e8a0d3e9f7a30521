// Does a rank's part in the hang watch of a run that prun has not started (launch/remote_watch.hpp).
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "launch/session.hpp"

namespace prun {

// Reports to the rendezvous, while it lives, what this rank's flight record says, and gives the run up when
// the rendezvous itself stands still while this rank waits in a collective. A rank that does not end within
// two seconds of a hang is ended with the exit code of one: what blocks it cannot be asked to stop.
class Heartbeat {
 public:
  // A limit of 0 is none. `failed` says why the run fails, once it does, and `stops` whether this rank was
  // asked to end.
  Heartbeat(Session& session, std::chrono::milliseconds limit, std::function<std::optional<Error>()> failed,
            std::function<bool()> stops);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  void run();
  void tell();
  void check_rendezvous(const FlightSnapshot& flight);
  [[noreturn]] void end_process(const Error& why) const;

  Session& session_;
  std::chrono::milliseconds limit_;
  std::function<std::optional<Error>()> failed_;
  std::function<bool()> stops_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace prun
