// Packs shards, as ZeRO does. The parameters of a segment that are updated alike become one flat bucket, of
// which each rank owns a part: it sums that part of the gradient, updates it, and the parts are gathered
// again. The ranks are those of one axis, or of several together: of the requested axes, those that sum the
// gradients.
#pragma once

#include "program/passes.hpp"

namespace prun {

// Packs state, after place_on_mesh. An optimizer that treats elements alike writes the update of the parts.
// For one that updates whole tensors, what it wrote for single ones is rewritten (placement/pack_whole.hpp).
void pack_state(Program& program, const Optimizers& optimizers, const ShardRequest& parts);

// Packs parameters of which ranks sum what the optimizer's update makes of their gradients, and not these
// (placement/summand_exchanges.hpp), into flat buckets. Every rank has all of them. Where no axis sums, each
// of a rank's microbatches is taken for another rank's. Throws if there is no such parameter.
void pack_summands(Program& program, const Optimizers& optimizers, std::int64_t microbatches);

}  // namespace prun
