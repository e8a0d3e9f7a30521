#include "plan/proof/sums_over_ranks.hpp"

#include <algorithm>

#include "plan/proof/check_failure.hpp"

namespace prun {

void SumsOverRanks::touch(FunctionKind kind, const Op& op, std::size_t i, bool first,
                          const Content& content) {
  if (program_.value(content.value).role != Role::gradient) return;
  if (op.def->clears || first) begin(op, first, content);
  if (op.def->clears) return;
  follow_parts(kind, op.access(i), content);
  if (kind == FunctionKind::reduce && op.access(i) == Access::write)  // the sum, cast back to its own type
    summed_.insert({content.value, content.instance});
  else
    check_use(kind, op, op.access(i), content);
}

void SumsOverRanks::begin(const Op& op, bool first, const Content& content) {
  if (unsummed_.count({content.value, content.instance}) != 0)
    fail_check("op '", op.kind(), "' ", first ? "begins " : "clears ", describe(program_, content),
               " again before it is summed over the ranks");
  summed_.erase({content.value, content.instance});
}

// Says whether ranks exchange the op's result.
bool SumsOverRanks::is_sent(const Op& op) const {
  const std::vector<Id>& ops = program_.segment(op.segment).ops(op.function);
  return std::any_of(ops.begin(), ops.end(), [&](Id id) {
    return program_.op(id).exchange() && program_.op(id).operands.front() == op.operands.back();
  });
}

// Says whether all that the op writes is a summand of each rank too, or its own: then it may read summands.
bool SumsOverRanks::keeps_apart(const Op& op, Id gradient) const {
  const std::vector<AxisPlacement>& placement = program_.value(gradient).placement;
  for (AxisId axis = 0; axis < placement.size(); ++axis)
    for (std::size_t i = 0; placement[axis].is_partial() && i < op.operands.size(); ++i) {
      if (op.operands[i] == none || op.access(i) == Access::read) continue;
      const AxisPlacement lies = program_.value(op.operands[i]).on(axis);
      if (!lies.is_partial() && !lies.is_varying()) return false;
    }
  return true;
}

// Checks a gradient that is a partial sum of each rank: it is summed once, after its last contribution.
void SumsOverRanks::check_use(FunctionKind kind, const Op& op, Access access, const Content& content) const {
  const bool summed = summed_.count({content.value, content.instance}) != 0;
  if (access == Access::update && summed)
    fail_check("op '", op.kind(), "' adds to ", describe(program_, content),
               " after it was summed over the ranks");
  const std::vector<AxisPlacement>& placement = program_.value(content.value).placement;
  const bool partial =
      std::any_of(placement.begin(), placement.end(), [](const AxisPlacement& p) { return p.is_partial(); });
  const bool leaves =
      kind == FunctionKind::reduce && !op.def->converts && !is_sent(op) && !keeps_apart(op, content.value);
  if (partial && !summed && (leaves || kind == FunctionKind::norm || kind == FunctionKind::update))
    fail_check("op '", op.kind(), "' reads ", describe(program_, content),
               " before it is summed over the ranks");
}

void SumsOverRanks::exchange(FunctionKind kind, Access access, const Content& content) {
  if (program_.value(content.value).role != Role::gradient) return;
  // Tied copies are summed before the ranks that hold summands of each.
  if (kind != FunctionKind::tie) summed_.insert({content.value, content.instance});
  follow_parts(kind, access, content);
}

// Follows gradients kept in parts: all that was added to the whole is handed to the sum before it is cleared,
// and before the step needs it.
void SumsOverRanks::follow_parts(FunctionKind kind, Access access, const Content& content) {
  const std::optional<ViewOf>& view = program_.value(content.value).view;
  if (!view || program_.value(view->whole).lifetime != ValueLifetime::unreduced) return;
  if (kind == FunctionKind::reduce && access == Access::read)
    unsummed_.erase({content.value, content.instance});
  else if (kind != FunctionKind::reduce && kind != FunctionKind::tie && access == Access::update)
    unsummed_.insert({content.value, content.instance});
}

void SumsOverRanks::check_complete(std::optional<std::int32_t> of) const {
  for (const auto& [value, instance] : unsummed_)
    if (!of || *of == instance)
      fail_check(describe(program_, {value, instance, -1}),
                 " is not summed over the ranks when its norm is taken");
}

void SumsOverRanks::append_state(std::vector<std::int64_t>& state) const {
  for (const auto* sums : {&summed_, &unsummed_})
    for (const auto& [value, instance] : *sums) state.insert(state.end(), {value, instance});
}

}  // namespace prun
