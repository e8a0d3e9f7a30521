// Packs into flat buckets what strategies request to be kept in parts, and what ranks sum in codes.
#pragma once

#include <optional>

#include "plan/pipeline/lay_out_pipeline.hpp"
#include "program/optimizers.hpp"
#include "train/assemble/batch_arithmetic.hpp"
#include "train/assemble/purpose.hpp"

namespace prun {

// Throws if the recipe's formats, its optimizers or its stages do not go with that.
void pack_requested(Program& program, const Recipe& recipe, PluginHost& plugins, const Optimizers& optimizers,
                    const std::optional<PipelineLayout>& pipeline, std::int64_t accumulate, Purpose purpose);

}  // namespace prun
