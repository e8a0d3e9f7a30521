// Refuses ranks that read another recipe, other data or other checkpoints, or run another build: they would
// train something else, or wait for each other for ever.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "execute/communicators.hpp"
#include "execute/executor.hpp"
#include "train/assemble/assembly.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/checkpoint/start_values.hpp"
#include "train/loop/samples.hpp"

namespace prun {

// ------------------------------------------------------------------- agreement

// Checks that ranks agree; this is collective over all ranks, before they connect. Throws bad_input on every
// rank, naming the first rank that differs and, if the recipe differs, the first key. What belongs to a place
// may differ: device (except for what gives other bits), observers, plugins, run.name, run.out, run.keep,
// run.fresh and run.hang_limit; not the build of a plugin that two ranks share. Two ranks must not have the
// same unit of a device.
void check_agreement(const Assembly& assembly, const PluginHost& plugins, const Exchange& exchange);

// States where a rank starts from, and what it is going to read.
struct StartingPoint {
  const std::optional<LoadedCheckpoint>& loaded;
  const StartValues* weights = nullptr;
  const Samples& samples;
  const Samples* validation = nullptr;  // null if it evaluates nothing
};

// Checks the start; this is collective over all ranks, before the first step: it compares what was loaded,
// the size of the data and some samples spread over it, and the plugins once more, of which there may be more
// by now.
void check_start(const Mesh& mesh, const PluginHost& plugins, const StartingPoint& start,
                 const Exchange& exchange);

// ------------------------------------------------------------------- membership
// Makes a process one rank of many, and lets it meet the others.

// Returns probes that observe what the queues of a rank do; they must outlive its trainer. It is called once
// the communicators exist; a single rank has none: null.
using Probes = std::function<std::vector<Probe*>(const Assembly&, Communicators*)>;

// Returns them; without such a function there are none.
std::vector<Probe*> probes_of(const Probes& probes, const Assembly& assembly, Communicators* communicators);

// Is held as long as communicators may be used from elsewhere: code that aborts them knows them by it.
using CommunicatorLease = std::shared_ptr<void>;

// Holds what makes a rank one of many; all of it may be left out for a single rank.
struct Membership {
  Exchange exchange;
  Probes probes, evaluation_probes;
  // Does the same for the plan of another kind of steps than the full one.
  std::function<std::vector<Probe*>(const Assembly&, const Plan&, Communicators*)> other_probes;
  // Has all steps run the full step's plan, which probes observe.
  bool full_steps = false;
  // If set, a rank of many runs without the others: an echo answers its exchanges.
  bool alone = false;
  // Is called with each step once those before it are finished; it may have been started already.
  std::function<void(std::int64_t step)> before_step;
  // Is called when a save advances, which others may wait for; any thread may call it.
  std::function<void()> saving;
  // Lends the communicators; the lease ends before they do, however the trainer ends.
  std::function<CommunicatorLease(Communicators&)> connected;
};

// Returns how a rank sends texts to all others of its mesh; it is empty if the rank is alone.
Announce announce_to_all(const Membership& membership, const Assembly& assembly);

// Connects the other ranks. Every rank makes one, and all check then that they are going to do the same.
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
