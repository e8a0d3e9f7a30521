#include "program/group_losses.hpp"

#include "ops/base_ops.hpp"

namespace prun {
namespace {

// The op's operands are the largest logits, sums, hits, targets and the loss.
bool is_loss_of_split_head(const Op& op) {
  return op.is(base_ops::lm_head_loss) || op.is(base_ops::lm_head_regularized_loss);
}

bool adds_to(const Op& op, Id sum) {
  for (std::size_t i = 0; i < op.operands.size(); ++i)
    if (op.operands[i] == sum && op.access(i) == Access::update) return true;
  return false;
}

void add_sum(Program& program, Id loss) {
  const Op op = program.op(loss);
  std::vector<AttrValue> attrs;
  for (std::size_t i = 0; i < op.def->attr_count; ++i)
    attrs.push_back({op.def->attrs[i].name, program.attr(loss, op.def->attrs[i].name)});
  program.add_op(op.segment, op.function, op.part, base_ops::lm_head_groups,
                 {op.operands[0], op.operands[1], op.operands[2], op.operands[3],
                  program.input(op.segment, groups_input), program.find_runtime(group_sums)},
                 attrs, loss);
}

}  // namespace

void declare_loss_groups(Program& program, std::int64_t groups) {
  const Id step = program.step_segment();
  Value input = program.value(program.input(step, "targets"));
  input.name = groups_input;
  program.add_value(std::move(input));
  const Dim dims[] = {{"group", groups}, {"loss_and_count", 2}};
  program.add_tally(step, "losses", dims);
}

void sum_loss_by_group(Program& program) {
  const Id loss_sum = program.runtime("loss_sum");
  for (Id segment = program.step_segment() + 1; segment < program.segment_count(); ++segment) {
    const std::vector<Id> forward = program.segment(segment).ops(FunctionKind::forward);
    for (const Id id : forward) {
      if (!adds_to(program.op(id), loss_sum)) continue;
      if (!is_loss_of_split_head(program.op(id)))
        throw_error(ErrorCode::unsupported, "cannot report the loss by set or role: op '",
                    program.op(id).kind(), "' of segment '", program.segment(segment).name,
                    "' gives no loss of each target; leave run.loss_by_set and run.loss_by_role out");
      add_sum(program, id);
    }
  }
}

}  // namespace prun
