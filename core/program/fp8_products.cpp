#include "program/fp8_products.hpp"

#include <algorithm>
#include <vector>

#include "prun/fp8_blocks.hpp"

namespace prun {
namespace {

constexpr std::string_view attr_name = "fp8", from_name = "fp8_from", until_name = "fp8_until";

template <class Body>
void each_that_can(const Program& program, Body body) {
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    for (const std::vector<Id>& function : program.segment(segment).functions)
      for (const Id id : function)
        if (program.op(id).def->in_blocks) body(id);
}

[[noreturn]] void refuse_cut(const Program& program, const Op& op, const std::string& why) {
  throw_error(ErrorCode::unsupported, "cannot quantize op '", op.kind(), "' of segment '",
              program.segment(op.segment).name, "' to fp8 (precision.matmul) in blocks of ", fp8_block,
              " elements: it ", why, "; split it over fewer ranks, or leave precision.matmul out");
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

// Sequences in another order are cut into blocks in the order in which they lie.
void check_order(const Program& program) {
  const SequenceOrder& order = program.requests().sequence_order;
  if (order.permutes() && order.chunk % fp8_block != 0)
    throw_error(ErrorCode::unsupported, "cannot quantize to fp8 (precision.matmul) in blocks of ", fp8_block,
                " elements: ranks split sequences into chunks of ", order.chunk,
                " positions; split them over fewer ranks, or leave precision.matmul out");
}

std::vector<Id> ops_in_fp8(const Program& program, Id segment) {
  std::vector<Id> ops;
  for (const std::vector<Id>& function : program.segment(segment).functions)
    for (const Id id : function)
      if (program.op(id).def->in_blocks && program.attr(id, attr_name) != 0) ops.push_back(id);
  return ops;
}

// Has the products of the segment's layers in [from, until) alone multiply in fp8.
void leave_layers(Program& program, Id segment, std::int64_t from, std::int64_t until) {
  const std::int64_t all = program.segment(segment).repeat;
  for (const Id id : ops_in_fp8(program, segment)) {
    if (from >= until) {
      program.set_attr(id, attr_name, 0);
    } else if (from > 0 || until < all) {
      const Op& op = program.op(id);
      if (!op.has_attr(from_name) || !op.has_attr(until_name))
        throw_error(ErrorCode::unsupported, "cannot keep the first or last layers out of fp8: op '",
                    op.kind(), "' has no attributes '", from_name, "' and '", until_name,
                    "'; leave precision.first_in_compute and last_in_compute out");
      program.set_attr(id, from_name, static_cast<double>(from));
      program.set_attr(id, until_name, static_cast<double>(until < all ? until : 0));
    }
  }
}

void leave_layers(Program& program, const LayersInCompute& layers) {
  const Id first = program.step_segment() + 1, last = program.segment_count() - 1;
  std::int64_t all = 0, at = 0;
  for (Id id = first + 1; id < last; ++id)
    if (!ops_in_fp8(program, id).empty()) all += program.segment(id).repeat;
  if (layers.first + layers.last >= all)
    throw_error(ErrorCode::bad_input, "cannot apply precision.first_in_compute = ", layers.first,
                " and last_in_compute = ", layers.last, ": of ", all,
                " layers none is left with products in fp8; choose fewer, or leave precision.matmul out");
  if (layers.first > 0) leave_layers(program, first, 0, 0);
  if (layers.last > 0) leave_layers(program, last, 0, 0);
  for (Id id = first + 1; id < last; ++id) {
    const std::int64_t repeat = program.segment(id).repeat;
    if (ops_in_fp8(program, id).empty()) continue;
    leave_layers(program, id, std::clamp<std::int64_t>(layers.first - at, 0, repeat),
                 std::clamp<std::int64_t>(all - layers.last - at, 0, repeat));
    at += repeat;
  }
}

}  // namespace

void multiply_in_fp8(Program& program, LayersInCompute layers) {
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
                "cannot quantize to fp8 (precision.matmul): no product of the model divides into blocks of ",
                fp8_block, ": widths must be multiples of ", fp8_grain, " and at least ", fp8_block,
                ", the length of a sequence a multiple of ", fp8_block, "; leave the key out");
  if (layers.first > 0 || layers.last > 0) leave_layers(program, layers);
}

double layers_in_fp8(const Program& program, Id id) {
  const Op& op = program.op(id);
  if (!op.def->in_blocks || program.attr(id, attr_name) == 0) return 0;
  if (!op.has_attr(from_name) || !op.has_attr(until_name)) return 1;
  const auto all = static_cast<double>(program.segment(op.segment).repeat);
  const double until = program.attr(id, until_name);
  return ((until == 0 ? all : until) - program.attr(id, from_name)) / all;
}

double share_in_fp8(const Program& program) {
  double all = 0, narrow = 0;
  each_that_can(program, [&](Id id) {
    const Op& op = program.op(id);
    const double flops =
        op.cost(program.local_shape(op)).flops * static_cast<double>(program.segment(op.segment).repeat);
    all += flops;
    narrow += flops * layers_in_fp8(program, id);
  });
  return all > 0 ? narrow / all : 0;
}

}  // namespace prun
