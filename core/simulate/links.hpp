// Computes what the link between the recipe's device and the host carries in a predicted step, and how much
// of that nothing hides.
#pragma once

#include "simulate/simulate.hpp"

namespace prun {

// Holds seconds of one direction.
struct LinkTimes {
  double busy = 0;
  double exposed = 0;  // of these, for which the device's queues that compute are held up
};

struct Links {
  LinkTimes to_device, to_host;
  double passes = 0;  // seconds of forward and backward
  bool grow = false;  // what is carried grows with the tokens of a microbatch: activations

  double exposed() const { return to_device.exposed + to_host.exposed; }
};

// Takes the last step that was simulated.
Links links_of(const RankTimes& rank);

// How many tokens a step would have, of longer passes, such that they hide the link; 0 where no number does:
// nothing is exposed, or what is carried grows as well.
double tokens_to_hide(const Links& links, double tokens);

}  // namespace prun
