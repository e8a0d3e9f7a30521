#include "plan/call_text.hpp"

#include "base/text.hpp"

namespace prun {
namespace {

std::string exchange_name(const Plan& plan, const Call& call) {
  const std::span<const PlannedStep> steps = plan.steps(call);
  double bytes = 0;
  for (const PlannedStep& step : steps) bytes += step.exchange->count * size_of(step.exchange->dtype);
  const std::string times = steps.size() > 1 ? std::to_string(steps.size()) + " x " : "";
  return times + name_of(steps.front().exchange->kind) + " " + plan.queues[call.queue].name + " " +
         size_text(bytes);
}

}  // namespace

std::string call_text(const Program& program, const Plan& plan, const Call& call) {
  const PlannedFunction& function = plan.functions[call.function];
  const Instance& instance = plan.instances[call.instance];
  const SegmentData& segment = program.segment(instance.segment);
  std::string text = detail::concat(name_of(function.kind), ' ', segment.name);
  if (segment.repeat > 1) text += detail::concat('.', instance.layer);
  if (function.joins.size() > 1) text += detail::concat(" and ", function.joins.size() - 1, " more");
  if (call.microbatch >= 0) text += detail::concat(" mb ", call.microbatch);
  return text;
}

std::string call_name(const Program& program, const Plan& plan, const Call& call) {
  const std::span<const PlannedStep> steps = plan.steps(call);
  if (!steps.empty() && steps.front().exchange) return exchange_name(plan, call);
  return call_text(program, plan, call);
}

}  // namespace prun
