// Packs parameters into flat parameters for ZeRO. Parameters of a segment that have the same update share a
// bucket, of which each rank owns an equal shard: the gradient's shard is reduced to it, it updates its
// shard, and shards are gathered. The ranks are those of the requested axes that sum the gradients. Example:
// `stage = 1` on `dp = 4` and a block of qkv [6H, H], projection and MLP: one buffer holds these matrices one
// after another, padded to a multiple of 4; rank 1 has moments for its second quarter, wherever matrices
// begin and end.
#pragma once

#include "program/passes.hpp"

namespace prun {

// Runs after place_on_mesh. An elementwise optimizer writes its update anew, for the shard. The update of an
// optimizer of full tensors is rewritten (placement/pack_whole.hpp).
void pack_state(Program& program, const Optimizers& optimizers, const ShardRequest& parts);

// Packs parameters into flat buckets when ranks sum the optimizer's result instead of the gradient (1-bit
// Adam, placement/summand_exchanges.hpp). Each rank keeps the full bucket. On a single rank, each microbatch
// plays the part of one rank. Throws if no parameter qualifies.
void pack_summands(Program& program, const Optimizers& optimizers, std::int64_t microbatches);

}  // namespace prun
