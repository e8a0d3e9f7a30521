// Measures the link between device and host in a simulated step: how long it is busy, and how long
// computation waits for it. From this `prun plan` suggests how many tokens a step would hide an offload.
// Example: fetches take 300 ms and forward 200 ms: 100 ms are exposed, unless microbatches get 1.5 times the
// tokens.
#pragma once

#include "estimate/simulate.hpp"

namespace prun {

// Seconds of one direction.
struct LinkTimes {
  double busy = 0;
  double exposed = 0;  // part of `busy` for which the device's compute queues wait
};

struct Links {
  LinkTimes to_device, to_host;
  double passes = 0;  // of forward and backward
  bool grow = false;  // traffic grows with a microbatch's tokens, as activations do

  double exposed() const { return to_device.exposed + to_host.exposed; }
};

// Returns those of the last simulated step.
Links links_of(const RankTimes& rank);

// Returns the tokens a step at which passes hide the link; 0 if none does, or nothing is exposed.
double tokens_to_hide(const Links& links, double tokens);

}  // namespace prun
