#include "plan/order/order.hpp"

#include <set>

namespace prun {
namespace {

class CarriedSums {
 public:
  CarriedSums(const Program& program, Plan& plan) : program_(program), plan_(plan) {}

  void run() {
    for (Call& call : plan_.calls) {
      const std::span<const PlannedStep> steps = plan_.steps(call);
      for (std::size_t s = 0; s < steps.size(); ++s) {
        if (steps[s].op == none)
          arrive(call, steps[s]);
        else
          add(call, steps, s);
      }
    }
  }

 private:
  void arrive(const Call& call, const PlannedStep& step) {
    const Id value = step.operands.front().value;
    if (step.exchange->kind == CommKind::recv && program_.is_carried_gradient(value))
      begun_.insert({value, call.microbatch});
  }

  void add(Call& call, std::span<const PlannedStep> steps, std::size_t s) {
    const PlannedStep& step = steps[s];
    const Op& op = program_.op(step.op);
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (op.access(i) != Access::update || !program_.is_carried_gradient(op.operands[i])) continue;
      if (!begun_.insert({op.operands[i], call.microbatch}).second) continue;
      if ((step.writes_first >> i & 1u) == 0)
        throw_error(ErrorCode::unsupported, "cannot begin the gradient of a carried value with op '",
                    op.kind(), "' of segment '", program_.segment(op.segment).name,
                    "': its kernel only adds; give it KernelDef::writes_first");
      if (call.first.empty()) call.first.resize(steps.size());
      call.first[s] |= 1u << i;
    }
  }

  const Program& program_;
  Plan& plan_;
  std::set<std::pair<Id, std::int32_t>> begun_;  // pairs of sum and microbatch
};

}  // namespace

void begin_carried_sums(const Program& program, Plan& plan) {
  if (!program.carried().empty()) CarriedSums(program, plan).run();
}

}  // namespace prun
