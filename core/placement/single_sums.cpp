#include "placement/single_sums.hpp"

#include <set>

namespace prun {

bool SingleSums::is_replaced(const Bucket& bucket, Id id) const {
  const Op& op = program_.op(id);
  if (!op.exchanges_in_place() || op.exchange()->reduction != Reduction::sum) return false;
  const AxisId axis = program_.axis_of(id);
  return packing_.sums_codes(bucket) || is_over(bucket, axis) || stands_in_front(bucket, axis);
}

// Returns true for an axis in front of the bucket's in the mesh. Its ranks are further apart, so it sums
// shards rather than full gradients.
bool SingleSums::stands_in_front(const Bucket& bucket, AxisId axis) const {
  return packing_.parts(bucket) > 1 && axes_of(axis).back() < axes_of(bucket.axis).front();
}

std::string SingleSums::summed_behind(const Bucket& bucket, Id gradient) const {
  std::set<AxisId> axes;
  for (const Id id : program_.segment(bucket.segment).ops(FunctionKind::reduce))
    if (is_replaced(bucket, id) && !is_over(bucket, program_.axis_of(id)) && is_of(id, gradient))
      axes.insert(program_.axis_of(id));
  std::string text;
  for (const AxisId behind : axes) text += "summed over " + program_.mesh().name(behind) + ";";
  return text;
}

// Returns true if the op sums the gradient, or its cast to another type.
bool SingleSums::is_of(Id sum, Id gradient) const {
  if (program_.op(sum).operands[0] == gradient) return true;
  const std::vector<Id> casts = casts_around(sum);
  return std::any_of(casts.begin(), casts.end(),
                     [&](Id id) { return program_.op(id).operands[0] == gradient; });
}

std::vector<Id> SingleSums::casts_around(Id sum) const {
  const Id summed = program_.op(sum).operands[0];
  std::vector<Id> casts = program_.segment(program_.op(sum).segment).ops(FunctionKind::reduce);
  std::erase_if(casts, [&](Id id) {
    const Op& op = program_.op(id);
    return !op.def->converts || (op.operands[0] != summed && op.operands[1] != summed);
  });
  return casts;
}

}  // namespace prun
