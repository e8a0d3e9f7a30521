#include "plan/function/function_scratch.hpp"

#include <algorithm>

namespace prun {

void FunctionScratch::use(Id value, MemoryPlace place, std::int64_t bytes, std::int32_t at) {
  const auto [entry, fresh] = values_.try_emplace(value);
  if (fresh) entry->second = add_lifetime(place, bytes, at);
  lifetimes_[entry->second.range][entry->second.index].last = at;
}

void FunctionScratch::add_workspace(MemoryPlace place, std::int64_t bytes, std::int32_t at) {
  if (workspaces_in_ == region_) {
    among_[at] = add_lifetime(place, bytes, at);
    return;
  }
  // Workspaces share these bytes: no two are in use at once.
  const std::int32_t range = range_of(layout_, place);
  const auto number = static_cast<std::size_t>(range);
  if (apart_.size() <= number) apart_.resize(number + 1);
  apart_[number] = std::max(apart_[number], align(bytes + 2 * fence_));
  workspaces_[at] = {workspaces_in_, Whose::own, -1, fence_, bytes, no_axis, range};
}

FunctionScratch::Scratch FunctionScratch::add_lifetime(MemoryPlace place, std::int64_t bytes,
                                                       std::int32_t at) {
  const auto range = static_cast<std::size_t>(range_of(layout_, place));
  if (lifetimes_.size() <= range) lifetimes_.resize(range + 1);
  lifetimes_[range].push_back({bytes + 2 * fence_, at, at, -1});
  return {range, lifetimes_[range].size() - 1};
}

std::vector<std::int64_t> FunctionScratch::assign(bool side_by_side) {
  std::vector<std::int64_t> bytes;
  for (std::size_t range = 0; range < lifetimes_.size(); ++range)
    bytes.push_back(side_by_side && range == 0
                        ? assign_offsets_in_order(lifetimes_[range])
                        : assign_offsets(lifetimes_[range], layout_.alignment_in(layout_.ranges[range])));
  return bytes;
}

Address FunctionScratch::address_of(const Scratch& scratch) const {
  const Lifetime& lifetime = lifetime_of(scratch);
  return {region_,
          Whose::own,
          -1,
          lifetime.offset + fence_,
          lifetime.bytes - 2 * fence_,
          no_axis,
          static_cast<std::int32_t>(scratch.range)};
}

void FunctionScratch::place(PlannedStep& step, std::int32_t at, const Homes& homes) const {
  for (PlannedOperand& operand : step.operands) {
    if (operand.value == none || homes.contains(operand.value)) continue;
    const Scratch& scratch = values_.at(operand.value);
    operand.address = address_of(scratch);
    if (lifetime_of(scratch).last == at) step.dead_after.push_back(operand.address);
  }
  if (const auto found = among_.find(at); found != among_.end()) step.workspace = address_of(found->second);
  if (const auto found = workspaces_.find(at); found != workspaces_.end()) step.workspace = found->second;
  if (step.workspace.bytes > 0) step.dead_after.push_back(step.workspace);
}

}  // namespace prun
