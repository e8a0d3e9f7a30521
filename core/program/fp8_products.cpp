#include "program/fp8_products.hpp"

#include "prun/fp8_blocks.hpp"

namespace prun {
namespace {

constexpr std::string_view attr_name = "fp8";

template <class Body>
void each_that_can(const Program& program, Body body) {
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    for (const std::vector<Id>& function : program.segment(segment).functions)
      for (const Id id : function)
        if (program.op(id).def->in_blocks) body(id);
}

[[noreturn]] void refuse_cut(const Program& program, const Op& op, const std::string& why) {
  throw_error(ErrorCode::unsupported, "precision.products is \"fp8\", in blocks of ", fp8_block,
              " elements of the whole tensor, and op '", op.kind(), "' of segment '",
              program.segment(op.segment).name, "' ", why,
              "; let fewer ranks split it, or leave precision.products out");
}

void check_keeps_blocks(const Program& program, const Op& op, const OpShape& whole) {
  for (const Id operand : op.operands)
    if (operand != none && program.value(operand).part)
      refuse_cut(program, op,
                 detail::concat("has '", program.value(operand).name, "', which is a part of one"));
  const OpShape part = program.local_shape(op);
  if (op.def->in_blocks(&part, &whole)) return;
  for (std::int32_t i = 0; i < whole.count; ++i)
    for (std::int32_t d = 0; whole.operand[i].present && d < whole.operand[i].rank; ++d) {
      const Dim &all = whole.operand[i].dims[d], &own = part.operand[i].dims[d];
      if (all.extent != own.extent)
        refuse_cut(program, op,
                   detail::concat("would have parts of one where ranks have ", own.extent, " of the ",
                                  all.extent, " of dimension '", all.name.view(), "'"));
    }
  refuse_cut(program, op, "would have parts of one");
}

// Sequences in another order are cut into blocks as they lie.
void check_order(const Program& program) {
  const SequenceOrder& order = program.requests().sequence_order;
  if (order.permutes() && order.chunk % fp8_block != 0)
    throw_error(ErrorCode::unsupported, "precision.products is \"fp8\", in blocks of ", fp8_block,
                " elements of the whole tensor, and ranks share out sequences in chunks of ", order.chunk,
                " positions; let fewer ranks share them, or leave precision.products out");
}

}  // namespace

void multiply_in_fp8(Program& program) {
  check_order(program);
  bool any = false;
  each_that_can(program, [&](Id id) {
    const Op& op = program.op(id);
    const OpShape whole = program.shape(op);
    if (!op.def->in_blocks(&whole, &whole)) return;
    check_keeps_blocks(program, op, whole);
    program.set_attr(id, attr_name, 1);
    any = true;
  });
  if (!any)
    throw_error(ErrorCode::bad_input,
                "precision.products is \"fp8\", and no product of the model comes in blocks of ", fp8_block,
                ": widths must be multiples of ", fp8_grain,
                " and at least that, the length of a sequence a multiple of it; leave the key out");
}

double share_in_fp8(const Program& program) {
  double all = 0, narrow = 0;
  each_that_can(program, [&](Id id) {
    const Op& op = program.op(id);
    const double flops =
        op.cost(program.local_shape(op)).flops * static_cast<double>(program.segment(op.segment).repeat);
    all += flops;
    if (program.attr(id, attr_name) != 0) narrow += flops;
  });
  return all > 0 ? narrow / all : 0;
}

}  // namespace prun
