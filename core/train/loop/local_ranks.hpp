// Runs all ranks of a mesh as threads of this process: so a layout is compared with one rank. Each has an
// assembly, a device, communicators and its share of the cores of its own, as a process would.
#pragma once

#include <functional>
#include <stop_token>

#include "train/loop/trainer.hpp"

namespace prun {

// Unpins threads: each device would take the first cores for them, and where ranks share cores, none is
// pinned.
Recipe unpinned(const Recipe& recipe);

// Runs body on a thread for each rank; the trainers are made on their threads, all at once, and so are the
// probes. When one fails, or `stop` is requested, all are made to give up, and the first error is raised
// here.
void run_local_ranks(const Recipe& recipe, const std::vector<SearchPlace>& places,
                     const std::function<void(Trainer& trainer)>& body, const Probes& probes = {},
                     const std::stop_token& stop = {});

}  // namespace prun
