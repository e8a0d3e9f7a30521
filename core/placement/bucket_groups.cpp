#include "placement/bucket_groups.hpp"

#include "placement/pack_whole.hpp"
#include "placement/single_ops.hpp"
#include "placement/summand_exchanges.hpp"
#include "program/gathered_codes.hpp"
#include "prun/block_codes.hpp"

namespace prun {
namespace {

// Checks that each rank's shard consists of unbroken blocks of code_block neighbours.
void check_keeps_blocks(const Program& program, Id parameter) {
  const Value& value = program.value(parameter);
  const std::string name = program.segment(value.segment).name + "." + value.name;
  if (value.part)
    throw_error(ErrorCode::unsupported, "cannot quantize parameter '", name,
                "' (precision.gather, precision.reduce): it is a part of '", value.part->tensor,
                "', whose blocks of ", code_block,
                " elements are those of the whole tensor; let the axis divide the groups of "
                "heads, or leave these keys out");
  const std::vector<Dim> local = program.local_dims(parameter);
  std::int64_t run = 1;
  for (std::size_t d = local.size(); d-- > 0;) {
    run *= local[d].extent;
    if (local[d].extent != value.dims[d].extent && run % code_block != 0)
      throw_error(ErrorCode::unsupported, "cannot quantize parameter '", name, "' in blocks of ", code_block,
                  " elements (precision.gather, precision.reduce): ranks that split its dimension '",
                  value.dims[d].name.view(), "' have runs of ", run,
                  " elements; split it over fewer ranks, or leave these keys out");
  }
}

}  // namespace

bool comes_in_blocks(const Program& program, Id parameter) {
  const std::int64_t elements = program.value(parameter).elements();
  if (elements < code_least || elements % code_block != 0) return false;
  check_keeps_blocks(program, parameter);
  return true;
}

BucketMembers BucketGroups::of(Id segment) const {
  BucketMembers groups;
  for (const Id id : program_.segment(segment).values) {
    if (!is_packed(id)) continue;
    const Value& value = program_.value(id);
    const bool frozen = value.gradient == none;
    const std::vector<AxisId> axes = frozen ? axes_of_frozen(value) : axes_that_sum(value);
    if (!frozen && axes.empty() && !packing_.sums_in_update()) check_is_whole(value);
    if (packing_.sums_in_update()) check_one_stage_has(id);
    if (axes.empty() && !packing_.sums_in_update()) continue;
    groups[key_of(id, axes)].push_back(id);
  }
  return groups;
}

bool BucketGroups::is_packed(Id parameter) const {
  const Value& value = program_.value(parameter);
  if (value.role != Role::parameter || value.bucket >= 0 || value.untrained) return false;
  return !(packing_.is_alone() || packing_.sums_in_update()) || travels_in_codes(parameter);
}

// A parameter on two stages gets a bucket alone: both stages must sum in the same order, and nothing else is
// the same on both.
BucketKey BucketGroups::key_of(Id parameter, const std::vector<AxisId>& axes) const {
  const Value& value = program_.value(parameter);
  const bool frozen = value.gradient == none;
  std::string lies = frozen ? "frozen;" : is_tied(program_, value.gradient) ? "tied;" : "";
  for (const AxisPlacement& placement : value.placement) lies += to_text(placement) + ";";
  if (!frozen) lies += summed_behind(parameter, folded(axes));
  return {value.optimizer,
          value.decay,
          value.lr_scale,
          value.weight_decay,
          norm_of(value.gradient, value.segment),
          std::move(lies),
          form_of(parameter),
          folded(axes),
          travels_in_codes(parameter) ? Travels::in_codes : Travels::as_it_is,
          comes_in_squares(parameter)};
}

// With `precision.gather` parameters would be rounded twice.
bool BucketGroups::comes_in_squares(Id parameter) const {
  const Precision& precision = program_.precision();
  return precision.weight_codes && precision.gather_bits == 0 && packing_.kept.parameters &&
         !packing_.is_alone() && gathered_squares_of(program_, parameter).has_value();
}

bool BucketGroups::travels_in_codes(Id parameter) const {
  if (packing_.sums_in_update()) {
    const Value& value = program_.value(parameter);
    return value.gradient != none &&
           prun::sums_in_update(program_, parameter, packing_.optimizer_of(value)) &&
           comes_in_blocks(program_, parameter);
  }
  const Precision& precision = program_.precision();
  return ((precision.gather_bits > 0 && packing_.kept.parameters) || precision.reduce_bits > 0) &&
         comes_in_blocks(program_, parameter);
}

Id BucketGroups::norm_of(Id gradient, Id segment) const {
  for (const Id id : program_.segment(segment).ops(FunctionKind::norm))
    if (program_.op(id).operands[0] == gradient) return program_.op(id).operands[1];
  return none;
}

// Lists the further axes over which the gradient is summed: a bucket is summed over all of them or none.
std::string BucketGroups::summed_behind(Id parameter, AxisId axis) const {
  const Value& value = program_.value(parameter);
  Bucket bucket;
  bucket.segment = value.segment;
  bucket.axis = axis;
  bucket.coded = travels_in_codes(parameter);
  return SingleSums(packing_).summed_behind(bucket, value.gradient);
}

std::string BucketGroups::form_of(Id parameter) const {
  const Update update = update_of(program_, parameter);
  return packing_.optimizer_of(program_.value(parameter)).updates_whole()
             ? flat_form(program_, parameter, update)
             : update.form;
}

std::vector<AxisId> BucketGroups::axes_of_frozen(const Value& parameter) const {
  std::vector<AxisId> axes;
  for (const AxisId axis : packing_.axes)
    if (packing_.kept.parameters && parameter.on(axis).is_replicated()) axes.push_back(axis);
  return axes;
}

// A parameter that is sharded along an axis has its state sharded there already.
std::vector<AxisId> BucketGroups::axes_that_sum(const Value& parameter) const {
  std::vector<AxisId> axes;
  if (packing_.is_alone() && !packing_.sums_in_update()) return packing_.axes;
  for (const AxisId axis : packing_.axes) {
    const AxisPlacement lies = program_.value(parameter.gradient).on(axis);
    if (lies.is_partial()) axes.push_back(axis);
    if (packing_.sums_in_update()) continue;
    if (!lies.is_partial() && !lies.is_sharded())
      throw_error(ErrorCode::unsupported, "cannot shard the state of '", parameter.name, "' over axis '",
                  program_.mesh().name(axis), "': its gradient is ", to_text(lies),
                  " there; shard over an axis that sums all gradients, as that of strategy data");
  }
  return axes;
}

// Refuses gradients that are summed once a step if gradients are sharded, which are summed after each
// microbatch.
void BucketGroups::check_is_whole(const Value& parameter) const {
  if (!packing_.kept.gradients) return;
  for (const Id id : program_.segment(parameter.segment).ops(FunctionKind::reduce))
    if (touched_by(program_, id, {parameter.gradient}) != none)
      throw_error(ErrorCode::unsupported, "cannot shard the state of '", parameter.name,
                  "': its gradient is summed over another axis once a step, and those of others after each "
                  "microbatch; shard over that axis too, or keep gradients unsharded (strategy zero, stage = "
                  "1, or stage = 3 with reduce = \"step\")");
}

void BucketGroups::check_one_stage_has(Id parameter) const {
  const Value& value = program_.value(parameter);
  if (is_tied(program_, value.gradient) || value.copy_of != none)
    throw_error(ErrorCode::unsupported, "cannot reduce '", value.name,
                "' in 1 bit (precision.reduce): two stages hold it; untie it, or take another type");
}

}  // namespace prun
