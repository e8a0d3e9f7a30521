#include "plan/call_text.hpp"

namespace prun {

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

}  // namespace prun
