#include "placement/leaving_gradients.hpp"

#include <algorithm>

#include "placement/copies.hpp"
#include "placement/packing.hpp"

namespace prun {

// Backward adds to memory that instances have in turn; the parameter's gradient is the copy that arrives.
void LeavingGradients::take_away(Id parameter) {
  const Id sum = program_.value(parameter).gradient;
  check_stays_in_turn(sum);
  Value copy = program_.value(sum);
  copy.name += ".arrived";
  for (AxisPlacement& lies : copy.placement)
    if (lies.is_partial()) lies = AxisPlacement::replicated();
  const Id arrived = program_.add_value(std::move(copy));
  program_.value(sum).place.reset();
  program_.value(sum).in_turn = true;
  program_.value(parameter).gradient = arrived;
  use_instead(program_, program_.value(parameter).segment, FunctionKind::update, sum, arrived);
  leaving_[sum] = {sum, arrived};
}

// The rank's part of the sum lies in the blocks that it is a sum of, or in a value of its own.
void LeavingGradients::take_part_away(Bucket& bucket, MemoryPlace place) {
  check_stays_in_turn(program_.value(bucket.parameters.front()).gradient);
  if (keeps_summed_parts(program_, bucket)) check_summed_once(bucket);
  const Id before = bucket.own_gradients;
  const Id sum = keeps_summed_parts(program_, bucket) ? sum_of_kept(bucket) : sum_of_whole(bucket);
  program_.set_place(bucket.own_gradients, place);
  leaving_[before] = {sum, bucket.own_gradients};
}

void LeavingGradients::make_room_behind_updates() {
  for (const auto& [before, move] : leaving_) program_.value(move.arrived).in_turn = true;
}

Id LeavingGradients::sum_of_whole(Bucket& bucket) {
  program_.value(bucket.all_gradients).lifetime = ValueLifetime::unreduced;
  const Id sums = bucket.own_gradients;
  Value part = program_.value(sums);
  part.name += ".arrived";
  part.role = Role::state;
  part.view.reset();
  bucket.own_gradients = program_.add_value(std::move(part));
  use_instead(program_, bucket.segment, FunctionKind::update, sums, bucket.own_gradients);
  for (const Id padding : paddings(program_, bucket))
    program_.add_op(bucket.segment, FunctionKind::zero, Part::input, "zero", {padding}, {});
  return sums;
}

// The only microbatch's sum is that of the step: nothing is added to what is kept.
Id LeavingGradients::sum_of_kept(const Bucket& bucket) {
  const Id kept = bucket.own_gradients;
  Id sum = none;
  for (FunctionKind kind : {FunctionKind::zero, FunctionKind::reduce}) {
    const std::vector<Id> ops = program_.segment(bucket.segment).ops(kind);
    for (Id id : ops) {
      const Op op = program_.op(id);
      if (op.operands.back() != kept) continue;
      if (kind == FunctionKind::reduce) sum = in_kept_type(bucket, op.operands.front(), id);
      program_.erase_op(id);
    }
  }
  return sum;
}

Id LeavingGradients::in_kept_type(const Bucket& bucket, Id sum, Id before) {
  const DType from = program_.value(sum).dtype, to = program_.value(bucket.own_gradients).dtype;
  if (from == to) return sum;
  const AttrValue attrs[] = {{"to", static_cast<double>(to)}, {"from", static_cast<double>(from)}};
  const Id made = program_.add_op_creating(bucket.segment, FunctionKind::reduce, Part::input, "cast",
                                           std::span(&sum, 1), attrs, before)[0];
  program_.value(made).placement = program_.value(sum).placement;
  return made;
}

// Refuses a gradient whose microbatches would be added up elsewhere one by one: that would be another sum.
void LeavingGradients::check_stays_in_turn(Id gradient) const {
  if (parts_ != GradientParts::far_apart) return;
  throw_error(
      ErrorCode::unsupported, "the gradient of ", described(program_, gradient),
      " is to leave the device when the last microbatch of a step has added to it, so until then those "
      "of all layers would be there; set batch.order = \"vertical\", or batch.micro to all of a "
      "rank's share of batch.global");
}

void LeavingGradients::check_summed_once(const Bucket& bucket) const {
  if (parts_ == GradientParts::one) return;
  throw_error(
      ErrorCode::unsupported, "the ranks of axis '", program_.mesh().name(bucket.axis),
      "' sum the gradient of ", described(program_, bucket.parameters.front()),
      " after each microbatch, and it is to leave the device once a step; sum it once (strategy zero, "
      "stage = 3 with reduce = \"step\", or stage = 1)");
}

// Has gradients leave in the order in which they stood; gradients that stay are measured there too, since a
// norm is a sum.
void LeavingGradients::leave(Id segment) {
  const std::vector<Id> norms = program_.segment(segment).ops(FunctionKind::norm),
                        diagnoses = program_.segment(segment).ops(FunctionKind::diagnose);
  for (Id op : norms)
    if (reads_gradient(op)) move_op(op);
  for (Id op : diagnoses)
    if (reads_what_leaves(op)) move_op(op);
  for (const auto& [before, move] : leaving_)
    if (program_.value(before).segment == segment)
      add_copy(program_, segment, FunctionKind::reduce, move.sum, move.arrived);
}

bool LeavingGradients::reads_gradient(Id op) const {
  const std::vector<Id>& operands = program_.op(op).operands;
  return std::any_of(operands.begin(), operands.end(), [&](Id id) {
    return id != none && (program_.value(id).role == Role::gradient || program_.value(id).bucket >= 0);
  });
}

bool LeavingGradients::reads_what_leaves(Id op) const {
  const std::vector<Id>& operands = program_.op(op).operands;
  return std::any_of(operands.begin(), operands.end(), [&](Id id) { return leaving_.count(id) != 0; });
}

// It is unknown yet whether the step will be kept: all gradients are searched, unless the step is masked
// anyway.
void LeavingGradients::move_op(Id id) {
  const Id keep = program_.runtime("keep"), halt = program_.runtime("halt");
  std::vector<Id> operands = program_.op(id).operands;
  for (Id& operand : operands) {
    if (const auto found = leaving_.find(operand); found != leaving_.end()) operand = found->second.sum;
    if (operand == keep) operand = halt;
  }
  program_.add_copy(id, FunctionKind::reduce, std::move(operands), none);
  program_.erase_op(id);
}

}  // namespace prun
