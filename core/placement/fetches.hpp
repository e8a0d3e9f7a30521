// Parameters that lie elsewhere are fetched by the function `gather`, ahead of each use, into memory that
// instances have in turn; where ranks keep them in parts, each fetches its own before they come together.
#pragma once

#include "program/step_program.hpp"

namespace prun {

// A parameter of its own, which lies elsewhere.
void fetch_parameter(Program& program, Id parameter);

// Those of a bucket, which are to lie there. Throws an Error where each rank has all of them.
void fetch_part(Program& program, Bucket& bucket, MemoryPlace place);

}  // namespace prun
