// Fetches parameters that lie elsewhere in the function `gather`, before each use, into memory that instances
// have in turn; if ranks keep them in parts, each fetches its own part before they are gathered.
#pragma once

#include "program/step_program.hpp"

namespace prun {

// Fetches a parameter outside buckets, which lies elsewhere.
void fetch_parameter(Program& program, Id parameter);

// Fetches those of a bucket, whose parts are to lie at `place`. Throws an Error where each rank has all of
// them.
void fetch_part(Program& program, const Bucket& bucket, MemoryPlace place);

}  // namespace prun
