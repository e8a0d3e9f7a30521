#include "plan/memory/region_needs.hpp"

#include <algorithm>

namespace prun {
namespace {

std::int64_t in_range(const std::vector<std::int64_t>& by_range, std::int32_t range) {
  const auto index = static_cast<std::size_t>(range);
  return index < by_range.size() ? by_range[index] : 0;
}

}  // namespace

std::int64_t RegionNeeds::most_of(Region region, std::int32_t range) const {
  const std::vector<std::int64_t> bytes = bytes_of(region, range);
  return bytes.empty() ? 0 : *std::max_element(bytes.begin(), bytes.end());
}

std::int64_t RegionNeeds::most_scratch(std::int32_t range) const {
  std::int64_t most = 0;
  for (const PlannedFunction& function : plan_.functions)
    if (function.scratch == Region::scratch) most = std::max(most, in_range(function.scratch_bytes, range));
  return most;
}

std::int64_t RegionNeeds::most_workspace(std::int32_t range) const {
  std::int64_t most = 0;
  for (const PlannedFunction& function : plan_.functions)
    most = std::max(most, in_range(function.workspace_bytes, range));
  return most;
}

std::vector<std::int64_t> RegionNeeds::scratch_by_instance(Region region, std::int32_t range) const {
  std::vector<std::int64_t> bytes(plan_.instances.size());
  for (std::size_t i = 0; i < bytes.size(); ++i)
    for (const PlannedFunction& function : plan_.functions)
      if (function.scratch == region && function.segment == plan_.instances[i].segment &&
          !plan_.instances[i].receive_stub)
        bytes[i] = in_range(function.scratch_bytes, range);
  return bytes;
}

const Chunk* RegionNeeds::chunk_of(std::size_t instance) const {
  const auto at = static_cast<std::int32_t>(instance);
  for (const Chunk& chunk : plan_.chunks)
    if (at == chunk.stub || (chunk.first <= at && at < chunk.last)) return &chunk;
  return nullptr;
}

std::int64_t RegionNeeds::slots_of(std::size_t instance) const {
  const Chunk* chunk = chunk_of(instance);
  if (!chunk) return 1;
  if (!plan_.instances[instance].receive_stub) return chunk->slots * plan_.slot_sides;
  return plan_.stub_sides > 1 ? plan_.stub_sides : chunk->slots + 1;
}

std::int64_t RegionNeeds::slots_at_once() const {
  if (plan_.lanes > 1) return plan_.lanes;
  return work_.axis == no_axis && work_.interleaves() ? plan_.microbatches : 1;
}

bool RegionNeeds::boundaries_pass_on() const {
  bool away = false, passes = work_.axis == no_axis;
  for (const PlannedFunction& function : plan_.functions) {
    away |= function.kind == FunctionKind::put_away;
    const bool forward = function.kind == FunctionKind::forward || function.kind == FunctionKind::put_away;
    for (const PlannedStep& step : function.steps)
      for (const PlannedOperand& operand : step.operands)
        passes &= forward || operand.value == none || operand.address.region != Region::boundary;
  }
  return away && passes;
}

bool RegionNeeds::boundary_gradient_lasts(std::size_t instance) const {
  const Chunk* chunk = chunk_of(instance);
  return chunk && work_.axis != no_axis &&
         (work_.split || plan_.instances[instance].receive_stub ||
          static_cast<std::int32_t>(instance) + 1 == chunk->last);
}

}  // namespace prun
