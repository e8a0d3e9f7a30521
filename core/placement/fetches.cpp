#include "placement/fetches.hpp"

#include <algorithm>

#include "placement/copies.hpp"

namespace prun {
namespace {

// Returns the op before which everything is fetched that a segment's gather collects.
Id first_exchange(const Program& program, Id segment) {
  for (const Id op : program.segment(segment).ops(FunctionKind::gather))
    if (program.op(op).exchange()) return op;
  return none;
}

// Says whether ranks keep a copy of all parameters among them, which `renew` brings.
bool has_copy(const Program& program, const Bucket& bucket) {
  const std::vector<Id>& ops = program.segment(bucket.segment).ops(FunctionKind::renew);
  return std::any_of(ops.begin(), ops.end(), [&](Id id) {
    const Op& op = program.op(id);
    return op.exchange() && !op.exchanges_in_place() &&
           program.value(op.operands.front()).bucket == program.value(bucket.own_parameters).bucket;
  });
}

}  // namespace

void fetch_parameter(Program& program, Id parameter) {
  Value copy = program.value(parameter);
  copy.name += ".fetched";
  copy.role = Role::fetched;
  copy.gradient = copy.master = copy.copy_of = none;
  copy.states.clear();
  copy.place.reset();
  const Id segment = copy.segment, fetched = program.add_value(std::move(copy));
  for (Id user = 0; user < program.segment_count(); ++user)
    for (FunctionKind kind : microbatch_functions) use_instead(program, user, kind, parameter, fetched);
  add_copy(program, segment, FunctionKind::gather, parameter, fetched, first_exchange(program, segment));
}

void fetch_part(Program& program, const Bucket& bucket, MemoryPlace place) {
  const std::string& axis = program.mesh().name(bucket.axis);
  if (!gathers_parameters(program, bucket))
    throw_error(ErrorCode::unsupported, described(program, bucket.parameters.front()), " is to lie in ",
                name_of(place.space), ", and the ranks of axis '", axis,
                "' keep its optimizer state in parts but each of them all of it; let them keep the "
                "parameters in parts too (strategy zero, stage = 3), and each fetches its own");
  if (has_copy(program, bucket))
    throw_error(ErrorCode::unsupported, described(program, bucket.parameters.front()), " is to lie in ",
                name_of(place.space),
                ", and ranks have a copy of it among them on the device; leave the copy "
                "out (strategy zero, secondary), or keep parameters on the device");
  if (!program.value(bucket.parameters.front()).view)
    throw_error(
        ErrorCode::unsupported, described(program, bucket.parameters.front()), " is to lie in ",
        name_of(place.space),
        ", and ranks make codes of it once a step, on the device; leave precision.weight_codes out, or "
        "keep parameters on the device");
  Value part = program.value(bucket.own_parameters);
  part.name += ".fetched";
  part.role = Role::view;
  part.view = {bucket.all_parameters, 0, bucket.axis};
  const Id fetched = program.add_value(std::move(part));
  program.set_place(bucket.own_parameters, place);
  const std::vector<Id> ops = program.segment(bucket.segment).ops(FunctionKind::gather);
  add_copy(program, bucket.segment, FunctionKind::gather, bucket.own_parameters, fetched, ops.front());
  for (Id op : ops)
    if (program.op(op).operands.front() == bucket.own_parameters) program.replace_operand(op, 0, fetched);
}

}  // namespace prun
