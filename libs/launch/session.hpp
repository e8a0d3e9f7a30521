// Holds a rank's part in a run: its identity, its connection to the others, its flight record.
#pragma once

#include <memory>

#include "launch/flight.hpp"
#include "launch/identity.hpp"
#include "launch/rendezvous.hpp"

namespace prun {

class Session {
 public:
  // Joins the run that the environment describes; returns null when this process is no rank. Blocks until the
  // rendezvous is reached.
  static std::unique_ptr<Session> join(const Environment& environment = process_environment());

  const Identity& identity() const { return identity_; }
  FlightRecorder& flight() { return *flight_; }
  Rendezvous& rendezvous() { return *rendezvous_; }

 private:
  Session() = default;

  Identity identity_;
  std::unique_ptr<FlightRecorder> flight_;  // destroyed last: the rendezvous' failure handler may write to it
  std::unique_ptr<Rendezvous> rendezvous_;
};

}  // namespace prun
