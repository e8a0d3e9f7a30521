// One process of a run of many ranks: the trainer tied to its session.
#pragma once

#include "launch/session.hpp"
#include "train/trainer.hpp"

namespace prun {

// Throws bad_input when the launcher started another number of ranks than the mesh has.
void check_world(const Identity& identity, const Recipe& recipe);

// train() for this rank. Its flight record follows the queues; when another rank fails, its communicators are
// aborted.
int train_rank(const Assembly& assembly, PluginHost& plugins, const std::string& resume_command,
               Session& session);

}  // namespace prun
