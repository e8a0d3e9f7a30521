#include "plan/proof/check_failure.hpp"
#include "plan/proof/check_plan.hpp"

namespace prun {
namespace {

// Checks a program over another: its memory is separate, or it is the same program with other microbatches
// and shares what persists.
class OverlayCheck {
 public:
  OverlayCheck(const Program& program, const Plan& plan, const BaseProgram& base_program)
      : program_(program), plan_(plan), base_program_(base_program) {}

  void run() {
    for (const Call& call : plan_.calls)
      for (const PlannedStep& step : plan_.steps(call)) {
        if (step.exchange && !gathers_in_place(call, step)) check_write(call, step, step.exchange->out);
        for (std::size_t i = 0; !step.exchange && i < step.operands.size(); ++i)
          if (step.operands[i].value != none && program_.op(step.op).access(i) != Access::read)
            check_write(call, step, step.operands[i].address);
        check_write(call, step, step.workspace);
        for (const Address& dead : step.dead_after) check_write(call, step, dead);
        for (const PlannedOperand& operand : step.operands)
          if (operand.value != none && lasts(operand.address.region)) check_same(call, operand);
      }
    if (base_program_.is_of(program_)) check_saves();
  }

 private:
  // Returns true for an in-place gather of unsharded parameters, from parts that both programs share.
  bool gathers_in_place(const Call& call, const PlannedStep& step) const {
    return plan_.functions[call.function].kind == FunctionKind::gather &&
           step.exchange->out.region == Region::parameter;
  }
  // Returns true if a call refreshes copies of parameters: both programs do so before use.
  bool renews(const Call& call, const Address& address) const {
    return plan_.functions[call.function].kind == FunctionKind::renew && address.region == Region::parameter;
  }
  // Returns true if both programs have a region at the same place.
  bool is_common(Region region) const {
    return base_program_.is_of(program_) && (lasts(region) || region == Region::runtime ||
                                             region == Region::batch || region == Region::scalars);
  }
  void check_write(const Call& call, const PlannedStep& step, const Address& address) const {
    if (address.bytes == 0 || is_common(address.region) || renews(call, address)) return;
    const std::string_view op = step.op == none ? "recv" : program_.op(step.op).kind();
    for (const int side : {0, 1}) {
      const std::int64_t at = plan_.resolve(call, address, side);
      for (const Layout::Range& range : base_program_.plan.layout.ranges)
        if (at < range.begin + range.kept && range.begin < at + address.bytes)
          fail_check("op '", op, "' writes ", name_of(address.region),
                     " where the program beneath keeps its own");
    }
  }

  // While a save reads, calls of both programs must wait for it by the same counter.
  void check_saves() const {
    if (plan_.save_reads != base_program_.plan.save_reads)
      fail_check("a save is not read as beneath the plan is said");
  }

  void check_same(const Call& call, const PlannedOperand& operand) const {
    const Value& value = program_.value(operand.value);
    for (Id other : base_program_.program.segment(value.segment).values) {
      const auto home = base_program_.plan.homes.find(other);
      if (home == base_program_.plan.homes.end() || base_program_.program.value(other).name != value.name)
        continue;
      Address there = home->second;
      there.whose = operand.address.whose;
      there.instance = operand.address.instance;
      if (there.bytes == operand.address.bytes &&
          base_program_.plan.resolve(call, there, 0) == plan_.resolve(call, operand.address, 0))
        return;
    }
    fail_check("'", value.name, "' does not lie where the program beneath has it");
  }

  const Program& program_;
  const Plan& plan_;
  const BaseProgram& base_program_;
};

}  // namespace

void check_over(const Program& program, const Plan& plan, const BaseProgram& base_program) {
  OverlayCheck(program, plan, base_program).run();
}

}  // namespace prun
