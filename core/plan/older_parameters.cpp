#include "plan/older_parameters.hpp"

namespace prun {

bool reads_before(const Program& program, const PlannedFunction& function) {
  for (const PlannedStep& step : function.steps)
    for (const PlannedOperand& operand : step.operands)
      if (operand.value != none && program.value(operand.value).age > 0) return true;
  return false;
}

void read_with_age(const Program& program, const Plan& plan, std::int64_t updates,
                   PlannedFunction& function) {
  for (PlannedStep& step : function.steps)
    for (PlannedOperand& operand : step.operands) {
      if (operand.value == none || program.value(operand.value).age == 0) continue;
      const Id version = program.as_before(program.value(operand.value).before_of, updates);
      operand = {version, plan.home(version)};
    }
}

}  // namespace prun
