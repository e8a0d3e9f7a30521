#include "placement/single_ops.hpp"

#include "ops/base_ops.hpp"

namespace prun {
namespace {

std::set<Id> gradients_of(const Program& program, const Bucket& bucket) {
  std::set<Id> gradients;
  for (const Id id : bucket.parameters) gradients.insert(program.value(id).gradient);
  return gradients;
}

// Returns a copy: the caller removes ops.
std::vector<Id> ops_of(const Program& program, const Bucket& bucket, FunctionKind function) {
  return program.segment(bucket.segment).ops(function);
}

}  // namespace

Id touched_by(const Program& program, Id op, const std::set<Id>& gradients) {
  for (const Id operand : program.op(op).operands)
    if (gradients.count(operand) != 0) return operand;
  return none;
}

std::set<AxisId> SingleOps::remove(const Bucket& bucket) const {
  remove_each(bucket, FunctionKind::zero, [](const Op& op) { return op.def->clears; });
  remove_each(bucket, FunctionKind::norm,
              [](const Op& op) { return op.is(base_ops::sum_squares) || op.is(base_ops::summand_squares); });
  const std::set<Id> gradients = gradients_of(program_, bucket);
  std::vector<Id> sums = ops_of(program_, bucket, FunctionKind::reduce);
  for (const Id id : sums) check_sums_or_casts(id, gradients);
  std::erase_if(sums, [&](Id id) { return !SingleSums(packing_).is_replaced(bucket, id); });
  std::set<AxisId> behind;
  for (const Id id : sums) {
    const AxisId axis = program_.axis_of(id);
    if (remove_sum(id, gradients) && !is_over(bucket, axis)) behind.insert(axis);
  }
  return behind;
}

// Expects one such op for each gradient.
template <class Expected>
void SingleOps::remove_each(const Bucket& bucket, FunctionKind function, Expected&& expected) const {
  const std::set<Id> gradients = gradients_of(program_, bucket);
  std::set<Id> done;
  for (const Id id : ops_of(program_, bucket, function)) {
    const Id gradient = touched_by(program_, id, gradients);
    if (gradient == none) continue;
    if (!expected(program_.op(id)) || !done.insert(gradient).second) refuse(id, gradient);
    program_.erase_op(id);
  }
}

void SingleOps::refuse(Id id, Id gradient) const {
  const Op& op = program_.op(id);
  throw_error(ErrorCode::unsupported, "cannot run op '", op.kind(), "' in ", name_of(op.function),
              " of segment '", program_.segment(op.segment).name, "': a strategy added it for '",
              program_.value(gradient).name, "', which is sharded over axis '",
              program_.mesh().name(folded(packing_.axes)),
              "'; leave it out, or the strategy that shards state");
}

void SingleOps::check_sums_or_casts(Id id, const std::set<Id>& gradients) const {
  const Id gradient = touched_by(program_, id, gradients);
  const Op& op = program_.op(id);
  if (gradient != none && !op.exchanges_in_place() && !op.def->converts) refuse(id, gradient);
}

// Removes a sum and the casts around it. Returns true if it sums one of these gradients.
bool SingleOps::remove_sum(Id sum, const std::set<Id>& gradients) const {
  const Id segment = program_.op(sum).segment, summed = program_.op(sum).operands[0];
  bool ours = gradients.count(summed) != 0;
  const std::vector<Id> casts = SingleSums(packing_).casts_around(sum);
  for (const Id id : casts) ours |= gradients.count(program_.op(id).operands[0]) != 0;
  if (!ours) return false;
  program_.erase_op(sum);
  const std::vector<Id>& left = program_.segment(segment).ops(FunctionKind::reduce);
  const bool summed_elsewhere = std::any_of(left.begin(), left.end(), [&](Id id) {
    return program_.op(id).exchanges_in_place() && program_.op(id).operands[0] == summed;
  });
  for (const Id id : casts)
    if (gradients.count(summed) == 0 && !summed_elsewhere) program_.erase_op(id);
  return true;
}

}  // namespace prun
