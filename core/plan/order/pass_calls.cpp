#include "plan/order/pass_calls.hpp"

#include <algorithm>
#include <set>

namespace prun {

std::vector<PassCall> functions_of(const Plan& plan, const ScheduleCall& call) {
  const Chunk& chunk = plan.chunks[call.chunk];
  std::vector<PassCall> list;
  const auto add = [&](FunctionKind kind, std::int32_t instance) {
    if (const std::int32_t function = plan.find(kind, instance); function >= 0)
      list.push_back({function, instance});
  };
  if (call.pass == Pass::forward) {
    for (std::int32_t i = chunk.first; i < chunk.last; ++i) add(FunctionKind::forward, i);
    return list;
  }
  for (std::int32_t i = chunk.last; i-- > chunk.first;) {
    if (call.pass != Pass::backward_weight) add(FunctionKind::backward, i);
    if (call.pass != Pass::backward_input) add(FunctionKind::backward_weight, i);
  }
  return list;
}

TouchedRegions::TouchedRegions(const Plan& plan, std::initializer_list<Region> wanted) {
  for (const PlannedFunction& function : plan.functions) {
    std::set<Target> found;
    for (const PlannedStep& step : function.steps)
      for (const PlannedOperand& operand : step.operands)
        if (operand.value != none &&
            std::find(wanted.begin(), wanted.end(), operand.address.region) != wanted.end())
          found.insert({operand.address.whose, operand.address.instance});
    targets_.emplace_back(found.begin(), found.end());
  }
}

std::vector<std::int32_t> TouchedRegions::by(const PassCall& call) const {
  std::vector<std::int32_t> instances;
  for (const auto& [whose, instance] : targets_[call.function]) {
    const std::int32_t at = whose == Whose::fixed ? instance : call.instance;
    if (std::find(instances.begin(), instances.end(), at) == instances.end()) instances.push_back(at);
  }
  return instances;
}

namespace {

Region region_of_gathered(const Plan& plan) {
  for (const PlannedFunction& function : plan.functions)
    for (const PlannedStep& step : function.steps)
      for (const PlannedOperand& operand : step.operands)
        if (operand.value != none && operand.address.region == Region::gathered) return Region::gathered;
  return Region::parameter;
}

}  // namespace

TouchedGathered::TouchedGathered(const Plan& plan)
    : plan_(plan), touched_(plan, {region_of_gathered(plan)}) {}

std::vector<std::int32_t> TouchedGathered::by(const PassCall& call) const {
  std::vector<std::int32_t> instances = touched_.by(call);
  std::erase_if(instances, [&](std::int32_t i) { return plan_.find(FunctionKind::gather, i) < 0; });
  return instances;
}

}  // namespace prun
