// Refuses ranks that read another recipe, other data or other checkpoints, or run another build: they would
// train something else, or wait for each other for ever.
#pragma once

#include <optional>

#include "execute/communicators.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/checkpoint/start_values.hpp"
#include "train/loop/samples.hpp"

namespace prun {

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

}  // namespace prun
