// Plans the saver's queue: what a save that goes on beside the next steps reads in which order, and which
// calls wait for it.
#pragma once

#include "plan/base_program.hpp"
#include "plan/plan.hpp"

namespace prun {

// Derives the reads of a save, which is of one step: the first call to overwrite what it reads waits until
// that is read, in whichever step. Reads stand in the order in which a step overwrites what they read, so
// each call waits for one of them, and with it for all before; waits that another wait implies are left out.
// The waits of the plan's own queues are derived before. If `base_program` is a plan of the same program, a
// save may go on over steps of both, so its reads are those of the other.
void derive_save_reads(const Program& program, std::int64_t rank, Plan& plan,
                       const BaseProgram* base_program = nullptr);

}  // namespace prun
