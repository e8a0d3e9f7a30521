#include "plan/function/exchange_steps.hpp"

#include "plan/offsets.hpp"
#include "plan/op_refusal.hpp"
#include "program/passes.hpp"

namespace prun {
namespace {

std::int64_t ranks_of(const Program& program, const Op& op, Id id) {
  const double axis = program.attr(id, "axis");
  if (axis < 0 || !program.mesh().has(static_cast<AxisId>(axis)))
    refuse_op(program, op, "the mesh has no axis ", axis, " to exchange over");
  const std::int64_t ranks = program.mesh().extent(static_cast<AxisId>(axis));
  if (ranks == 1) refuse_op(program, op, "axis ", axis, " of the mesh has one rank; leave the exchange out");
  return ranks;
}

// Checks the sizes: a comm plugin reads and writes as much as the kind says.
void check_sizes(const Program& program, const Op& op, std::int64_t ranks, const OperandShape& in,
                 const OperandShape& out) {
  const CommKind kind = op.exchange()->kind;
  const std::int64_t given = in.elements() * (kind == CommKind::all_gather ? ranks : 1);
  const std::int64_t wanted = out.elements() * (kind == CommKind::reduce_scatter ? ranks : 1);
  if (in.dtype != out.dtype || given != wanted)
    refuse_op(program, op, name_of(kind), " over ", ranks, " ranks does not make ", out.elements(),
              " elements in ", name_of(out.dtype), " of ", in.elements(), " in ", name_of(in.dtype),
              "; exchange a value that lies as it needs");
}

// Returns the number of pieces: a value that is exchanged as it lies, along a dimension, has as many as there
// are places before that dimension. Of an all-to-all, what goes to a rank is always one piece; of what
// shifts, each of a rank's parts of a place is one.
std::int64_t pieces_of(const Program& program, const Op& op, Id id, const OperandShape& in) {
  std::int64_t pieces = 1;
  const bool shifts = op.exchange()->kind == CommKind::send,
             direct = op.has_attr("direct") && program.attr(id, "direct") != 0;
  if (shifts || (direct && op.exchange()->kind != CommKind::all_to_all))
    for (auto dim = static_cast<std::int64_t>(program.attr(id, "dim")); dim-- > 0;)
      pieces *= in.dims[dim].extent;
  return shifts ? pieces * (program.attr(id, "chunks") > 0 ? 2 : 1) : pieces;
}

bool sums_in_place(const Program& program, const PlannedStep& step) {
  return program.op(step.op).exchanges_in_place() && step.exchange->reduction == Reduction::sum;
}

bool holds_sums(Region region) {
  return region == Region::gradient || region == Region::unreduced || region == Region::bucket;
}

// Says whether step b exchanges, in the same way, the bytes right after those of step a.
bool follows(const Program& program, const PlannedStep& a, const PlannedStep& b, std::int64_t fence) {
  if (!a.exchange || !b.exchange || program.axis_of(a.op) != program.axis_of(b.op)) return false;
  if (!sums_in_place(program, a) || !sums_in_place(program, b)) return false;
  // A value that two stages hold must be summed in the same order on both, which depends on the place within
  // an exchange.
  if (is_tied(program, a.operands.back().value) || is_tied(program, b.operands.front().value)) return false;
  const Address &x = a.exchange->in, &y = b.exchange->in;
  return a.exchange->dtype == b.exchange->dtype && x.region == y.region && holds_sums(x.region) &&
         x.whose == y.whose && x.instance == y.instance && x.range == y.range &&
         align(x.offset + x.bytes) + 2 * fence == y.offset;
}

}  // namespace

std::optional<PlannedExchange> exchange_of(const Program& program, Id id, const OpShape& shape) {
  const Op& op = program.op(id);
  const OpExchange* exchange = op.exchange();
  if (!exchange) return std::nullopt;
  const OperandShape &in = shape.operand[0], &out = shape.operand[shape.count - 1];
  check_sizes(program, op, ranks_of(program, op, id), in, out);
  // A reduce-scatter counts its output, an all-to-all what goes to each rank, the others their input.
  const OperandShape& counted = exchange->kind == CommKind::reduce_scatter ? out : in;
  const std::int64_t parts = exchange->kind == CommKind::all_to_all ? ranks_of(program, op, id) : 1;
  PlannedExchange planned{.kind = exchange->kind,
                          .reduction = exchange->reduction,
                          .dtype = counted.dtype,
                          .count = counted.elements() / parts,
                          .in = {},
                          .out = {},
                          .pieces = pieces_of(program, op, id, in)};
  if (exchange->kind == CommKind::send) {
    planned.distance = static_cast<std::int64_t>(program.attr(id, "distance"));
    planned.chunks = static_cast<std::int64_t>(program.attr(id, "chunks"));
  }
  return planned;
}

std::vector<PlannedStep> merge_exchanges(const Program& program, std::vector<PlannedStep> steps,
                                         std::int64_t fence) {
  std::vector<PlannedStep> merged;
  for (PlannedStep& step : steps) {
    if (merged.empty() || !follows(program, merged.back(), step, fence)) {
      merged.push_back(std::move(step));
      continue;
    }
    PlannedExchange& bucket = *merged.back().exchange;
    const Address& next = step.exchange->in;
    bucket.in.bytes = bucket.out.bytes = next.offset + next.bytes - bucket.in.offset;
    bucket.count = bucket.in.bytes / size_of(bucket.dtype);
    merged.back().also.push_back(step.op);
    merged.back().operands.push_back(step.operands[0]);
  }
  return merged;
}

}  // namespace prun
