#include "placement/bucket_groups.hpp"

#include <algorithm>
#include <set>

#include "ops/base_ops.hpp"
#include "placement/pack_whole.hpp"
#include "prun/block_codes.hpp"

namespace prun {

// ------------------------------------------------------------------- single sums

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

namespace {

// ------------------------------------------------------------------- single ops

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

namespace {

// ------------------------------------------------------------------- summand exchanges

constexpr AttrValue signs{"bits", 1};

}  // namespace

void SummandExchanges::insert() {
  const std::vector<Id> ops = program_.segment(bucket_.segment).ops(FunctionKind::update);
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Op op = program_.op(ops[i]);
    if (!op.has_attr("summands") || op.operands.front() != bucket_.own_gradients) continue;
    PRUN_CHECK(i + 1 < ops.size(), "nobody reads what op '", op.kind(), "' makes");
    program_.set_attr(ops[i], "summands", static_cast<double>(summands_));
    const Id summand = op.operands.back(), sum = sum_of(summand, ops[i + 1]);
    program_.replace_in(std::span(ops).subspan(i + 1), summand, sum);
  }
}

Id SummandExchanges::sum_of(Id summand, Id before) {
  const DType type = program_.value(summand).dtype;
  const AttrValue decoded[] = {signs, {"to", static_cast<double>(type)}}, axis[] = {axis_attr(axis_)};
  Id codes = encoded(summand, add_error("error", summand, true), before);
  if (!is_alone()) {
    codes = add(base_ops::swap_summands, {codes}, axis, before);
    lay_in_parts(codes);
  }
  const Id part = add(base_ops::sum_decoded, {codes}, decoded, before);
  if (!is_alone()) lay_in_parts(part);
  codes = encoded(part, add_error("sum_error", part, false), before);
  if (!is_alone()) {
    lay_in_parts(codes);
    const AttrValue along[] = {axis_attr(axis_), {"dim", 0}, {"parts", static_cast<double>(summands_)}};
    codes = add(base_ops::all_gather, {codes}, along, before);
    program_.value(codes).placement.assign(program_.mesh().size(), {});
  }
  return add(base_ops::decode, {codes}, decoded, before);
}

// The error of a step that is not kept is dropped with the step.
Id SummandExchanges::encoded(Id numbers, Id error, Id before) {
  return add(base_ops::encode_onward, {numbers, error, program_.runtime("keep")}, std::span(&signs, 1),
             before);
}

Id SummandExchanges::add(const char* kind, std::initializer_list<Id> inputs, std::span<const AttrValue> attrs,
                         Id before) {
  return program_.add_op_creating(bucket_.segment, FunctionKind::update, Part::input, kind,
                                  std::span(inputs.begin(), inputs.size()), attrs, before)[0];
}

// Adds the error of quantization. `of_ranks`: one for each rank, otherwise one for the rank's shard.
Id SummandExchanges::add_error(const char* name, Id like, bool of_ranks) {
  Value error;
  error.name = detail::concat("bucket.", number_, ".", name);
  error.role = Role::state;
  error.dtype = OpShape::statistics(program_.value(like).dtype);
  error.segment = bucket_.segment;
  error.dims = {{"packed", bucket_.elements}};
  error.placement.resize(program_.mesh().size());
  error.starts_anew = "precision.reduce";
  if (of_ranks) error.dims.insert(error.dims.begin(), {"ranks", summands_});
  if (!is_alone())
    for (const AxisId axis : axes_of(axis_))
      error.placement[axis] = AxisPlacement::sharded(of_ranks ? Name("ranks") : Name("packed"));
  return program_.add_value(std::move(error));
}

void SummandExchanges::lay_in_parts(Id id) { program_.value(id).placement = shards_over(program_, axis_); }

namespace {

// ------------------------------------------------------------------- bucket groups

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
          gathers_codes(parameter)};
}

// With `precision.gather` parameters would be rounded twice.
bool BucketGroups::gathers_codes(Id parameter) const {
  return program_.requests().gathered_codes.of.contains(parameter) && program_.precision().gather_bits == 0 &&
         packing_.kept.parameters && !packing_.is_alone();
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
