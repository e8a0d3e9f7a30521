// Runs training from its first step to its last: the loop with its observers, checkpoints and signals.
#pragma once

#include <string>

#include "train/loop/trainer.hpp"

namespace prun {

// Does the whole run of one rank as `prun RECIPE` does; the first rank has the observers and writes the
// checkpoints. `resume_command` is printed when it is stopped. Returns the exit code: 0, or 128 + the signal
// that stopped it. Raises Error for everything that goes wrong.
int train(const Assembly& assembly, PluginHost& plugins, const std::string& resume_command,
          Membership membership = {});

}  // namespace prun
