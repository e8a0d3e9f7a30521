#include "placement/summand_exchanges.hpp"

#include <algorithm>

#include "ops/base_ops.hpp"
#include "placement/flat_ranges.hpp"
#include "prun/block_codes.hpp"

namespace prun {
namespace {

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

}  // namespace prun
