// Makes a process one rank of many, and lets it meet the others.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "execute/communicators.hpp"
#include "execute/executor.hpp"
#include "train/assemble/assembly.hpp"
#include "train/checkpoint/checkpoint.hpp"

namespace prun {

// These probes observe what the queues of a rank do; they must outlive its trainer. Called once the
// communicators stand; one rank alone has none: null.
using Probes = std::function<std::vector<Probe*>(const Assembly&, Communicators*)>;

// Held as long as communicators may be used from elsewhere: whoever aborts them knows them by it.
using CommunicatorLease = std::shared_ptr<void>;

// What makes a rank one of many; all of it may be left out for one rank alone.
struct Membership {
  Exchange exchange;
  Probes probes, evaluation_probes;
  // Does the same for a plan that steps have before the batch is full.
  std::function<std::vector<Probe*>(const Assembly&, const Plan&, Communicators*)> ramp_probes;
  // A rank of many without the others: to its exchanges there is only an echo.
  bool alone = false;
  // Told of each step once those before it are finished; it may have been started already.
  std::function<void(std::int64_t step)> before_step;
  // Told that a save gets on, which others may wait for; from any thread.
  std::function<void()> saving;
  // The lease ends before the communicators do, however the trainer ends.
  std::function<CommunicatorLease(Communicators&)> connected;
};

// Returns how a rank sends texts to all others of its mesh; empty where it is alone.
Announce announce_to_all(const Membership& membership, const Assembly& assembly);

// Connects the other ranks. Every rank makes it, and all check then that they are going to do the same.
class Peers {
 public:
  Peers(const Assembly& assembly, PluginHost& plugins, const Membership& membership);

  // Returns null for a rank that is alone.
  Communicators* communicators() const { return communicators_.get(); }

 private:
  std::unique_ptr<Communicators> communicators_;
  CommunicatorLease lease_;
};

}  // namespace prun
