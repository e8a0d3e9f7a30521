// Computes what the link between the recipe's device and the host carries in a predicted step, and how much
// of that nothing hides.
#pragma once

#include "estimate/simulate.hpp"

namespace prun {

// Holds seconds of one direction.
struct LinkTimes {
  double busy = 0;
  double exposed = 0;  // seconds of these that make the device's compute queues wait
};

struct Links {
  LinkTimes to_device, to_host;
  double passes = 0;  // seconds of forward and backward
  bool grow = false;  // whether what is carried grows with the tokens of a microbatch, as activations do

  double exposed() const { return to_device.exposed + to_host.exposed; }
};

// Returns the times of the last step that was simulated.
Links links_of(const RankTimes& rank);

// Returns how many tokens a step would need so that its longer passes hide the link; 0 if no number does:
// nothing is exposed, or what is carried grows as well.
double tokens_to_hide(const Links& links, double tokens);

}  // namespace prun
