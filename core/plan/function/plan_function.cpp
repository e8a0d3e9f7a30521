#include "plan/function/plan_function.hpp"

#include <algorithm>

#include "base/narrow.hpp"
#include "plan/function/exchange_steps.hpp"
#include "plan/function/function_order.hpp"
#include "plan/function/function_queues.hpp"
#include "plan/function/function_scratch.hpp"
#include "plan/function/kernel_choice.hpp"
#include "plan/function/reach.hpp"
#include "plan/older_parameters.hpp"

namespace prun {
namespace {

// Returns the region of a function's scratch. A reduction runs beside other functions, and so does an update
// on another device, or the copies for one: they share no scratch with them.
Region scratch_region(const Program& program, const Reach& reach, Id segment, FunctionKind kind) {
  if (kind == FunctionKind::reduce) return Region::bucket;
  if (kind != FunctionKind::update) return Region::scratch;
  const std::vector<Id>& ops = program.segment(segment).ops(kind);
  const bool moves =
      std::any_of(ops.begin(), ops.end(), [&](Id id) { return reach.crosses(program.op(id)); });
  return reach.device() != 0 || moves ? Region::update : Region::scratch;
}

void add_fences(PlannedStep& step, const Address& inside, std::int32_t operand, std::int64_t bytes) {
  Address before = inside, behind = inside;
  before.offset -= bytes;
  before.bytes = bytes;
  behind.offset += inside.bytes;
  behind.bytes = align(inside.bytes) - inside.bytes + bytes;
  step.fences.push_back({before, operand, true});
  step.fences.push_back({behind, operand, false});
}

class FunctionPlanner {
 public:
  FunctionPlanner(const Program& program, const Lowering& lowering, const Homes& around, Id segment,
                  FunctionKind kind, std::int32_t delay, Plan& plan)
      : program_(program),
        lowering_(lowering),
        around_(around),
        plan_(plan),
        reach_(program, lowering, plan, program.segment(segment).device_of(kind)),
        scratch_(scratch_region(program, reach_, segment, kind), workspace_region(program, segment, kind),
                 lowering.fence, plan.layout) {
    function_.segment = segment;
    function_.kind = kind;
    function_.delay = delay;
    function_.scratch = scratch_region(program, reach_, segment, kind);
  }

  PlannedFunction run() {
    for (Id op : ordered_ops(program_, function_.segment, function_.kind)) {
      if (function_.delay >= 0 && !program_.is_updated_with(op, function_.delay)) continue;
      add_step(op);
      if (looks_across(program_, op)) keep_what_travels();
      if (function_.steps.back().exchange) keep_beside();
    }
    // Values that travel together must lie together.
    const bool reduces = function_.kind == FunctionKind::reduce;
    function_.scratch_bytes = scratch_.assign(reduces);
    function_.workspace_bytes = scratch_.workspace_bytes();
    for (std::size_t at = 0; at < function_.steps.size(); ++at) give_addresses(at);
    if (reduces) function_.steps = merge_exchanges(program_, std::move(function_.steps), lowering_.fence);
    function_.pieces = divide_by_queue(program_, reach_, function_, plan_.lanes > 1, plan_.queues);
    return std::move(function_);
  }

 private:
  // Returns the region of workspaces: calls of several lanes need it one after the other.
  Region workspace_region(const Program& program, Id segment, FunctionKind kind) const {
    const Region scratch = scratch_region(program, reach_, segment, kind);
    return plan_.lanes > 1 && scratch == Region::scratch ? Region::workspace : scratch;
  }

  void add_step(Id id) {
    const Op& op = program_.op(id);
    const OpShape shape = program_.local_shape(op);
    const auto at = narrow<std::int32_t>(function_.steps.size());
    PlannedStep step;
    step.op = id;
    step.exchange = exchange_of(program_, id, shape);
    if (!step.exchange) {
      check_parts_agree(program_, op, shape);
      step.device = reach_.runner_of(op);
    }
    reach_.check(op, step.device);
    const std::int64_t workspace =
        step.exchange ? 0 : choose_kernel(op, shape, reach_.device_at(step.device), step);
    for (Id value : op.operands) step.operands.push_back(operand_of(value, at));
    if (workspace > 0) scratch_.add_workspace({step.device, Space::device}, workspace, at);
    if (!step.exchange) add_cost(op.cost(shape));
    function_.steps.push_back(std::move(step));
  }

  // Keeps what the exchanges right before the last step read: that step must not wait for them, so none of
  // its values may lie there.
  void keep_what_travels() {
    const auto now = narrow<std::int32_t>(function_.steps.size()) - 1;
    for (std::int32_t at = now - 1; at >= 0 && function_.steps[at].exchange; --at)
      operand_of(function_.steps[at].operands.front().value, now);
  }

  // Keeps what the exchanges right before the last step, which is one too, read and write: a comm plugin may
  // run them at once, so the last one's result must not lie there.
  void keep_beside() {
    const auto now = narrow<std::int32_t>(function_.steps.size()) - 1;
    for (std::int32_t at = now - 1; at >= 0 && function_.steps[at].exchange; --at)
      for (const PlannedOperand& operand : function_.steps[at].operands) operand_of(operand.value, now);
  }

  // Returns a value as operand, with its address if it has one already.
  PlannedOperand operand_of(Id value, std::int32_t at) {
    if (value == none) return {};
    const auto home = plan_.homes.find(value);
    if (home == plan_.homes.end()) {
      scratch_.use(value, reach_.place_of(value), program_.local_bytes(value), at);
      return {value, {}};
    }
    const Region region = home->second.region;
    function_.uses_batch |= facts_of(region).is_staged;
    function_.uses_inputs |= region == Region::input;
    return {value, home->second};
  }

  void add_cost(const OpCost& cost) {
    function_.cost.flops += cost.flops;
    function_.cost.bytes += cost.bytes;
  }

  void give_addresses(std::size_t at) {
    PlannedStep& step = function_.steps[at];
    scratch_.place(step, static_cast<std::int32_t>(at), plan_.homes);
    if (lowering_.fence > 0) fence(step);
    if (!step.exchange) return;
    step.exchange->in = step.operands.front().address;
    step.exchange->out = step.operands.back().address;
  }

  // Adds fences: values that lie side by side have no room between them, so they share the outer ones.
  void fence(PlannedStep& step) const {
    if (!step.kernel) return;
    for (std::size_t i = 0; i < step.operands.size(); ++i) {
      const PlannedOperand& operand = step.operands[i];
      if (operand.value == none || reach_.place_of(operand.value).space == Space::disk) continue;
      const auto found = around_.find(operand.value);
      add_fences(step, found == around_.end() ? operand.address : found->second, static_cast<std::int32_t>(i),
                 lowering_.fence);
    }
    if (step.workspace.bytes > 0) add_fences(step, step.workspace, -1, lowering_.fence);
  }

  const Program& program_;
  const Lowering& lowering_;
  const Homes& around_;
  Plan& plan_;
  const Reach reach_;
  FunctionScratch scratch_;
  PlannedFunction function_;
};

}  // namespace

PlannedFunction plan_function(const Program& program, const Lowering& lowering, const Homes& around,
                              Id segment, FunctionKind kind, std::int32_t delay, Plan& plan) {
  PlannedFunction function = FunctionPlanner(program, lowering, around, segment, kind, delay, plan).run();
  if (delay >= 0 && kind != FunctionKind::update) read_with_age(program, plan, delay, function);
  return function;
}

}  // namespace prun
