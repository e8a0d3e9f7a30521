// Packed shards: what ZeRO keeps. The parameters of a segment that are updated alike become one flat bucket,
// of which each rank owns a part: it sums that part of the gradient, updates it, and the parts are gathered
// again. The ranks are those of one axis, or of several together: of those asked for, the ones that sum the
// gradients.
#pragma once

#include "program/passes.hpp"

namespace prun {

// After place_on_mesh. An optimizer that treats elements alike writes the update of the parts. Of one that
// updates whole tensors, what it wrote for single ones is rewritten (placement/pack_whole.hpp).
void pack_state(Program& program, const Optimizers& optimizers, const PartsRequest& parts);

// Flat buckets of parameters of which ranks sum what the optimizer's update makes of their gradients, and not
// these (placement/summand_exchanges.hpp). Every rank has all of it. Where no axis sums, each of a rank's
// microbatches is taken for another rank's. Throws where there is no such parameter.
void pack_summands(Program& program, const Optimizers& optimizers, std::int64_t microbatches);

}  // namespace prun
