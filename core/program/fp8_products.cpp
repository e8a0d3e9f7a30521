#include "program/fp8_products.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "ops/base_ops.hpp"
#include "program/step.hpp"
#include "prun/fp8_blocks.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- fp8 products

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

namespace {

// ------------------------------------------------------------------- fp8 factors

bool is_summed(const OpShape& shape, const Dim& dim) {
  return std::find(std::begin(shape.sums), std::end(shape.sums), dim.name) != std::end(shape.sums);
}

// Returns the parameter that the op multiplies, or computes the gradient of.
Id weight_of(const Program& program, const Op& op) {
  for (const Id operand : op.operands)
    if (operand != none && program.value(operand).role == Role::parameter) return operand;
  for (const Id parameter : program.parameters())
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (op.operands[i] != none && op.access(i) == Access::update &&
          program.value(parameter).gradient == op.operands[i])
        return parameter;
  return none;
}

}  // namespace

std::vector<Fp8Factor> fp8_factors_of(const Program& program, const Op& op) {
  OpShape shape = program.shape(op);
  raise(op.def->rule(&shape));
  std::vector<Fp8Factor> factors;
  const Id weight = weight_of(program, op);
  std::size_t square = 0;
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    if (op.operands[i] == none || op.access(i) != Access::read) continue;
    const std::vector<Dim>& dims = program.value(op.operands[i]).dims;
    const auto summed =
        std::count_if(dims.begin(), dims.end(), [&](const Dim& d) { return is_summed(shape, d); });
    if (summed == 0) continue;
    const bool last = is_summed(shape, dims.back());
    const Value& value = program.value(op.operands[i]);
    if (value.role == Role::parameter || value.dtype == DType::u8) square = factors.size();
    factors.push_back({op.operands[i], last ? Fp8Blocks::rows : Fp8Blocks::columns,
                       last ? summed : static_cast<std::int64_t>(dims.size()) - summed, weight});
  }
  if (!factors.empty()) factors[square].blocks = Fp8Blocks::squares;
  return factors;
}

namespace {

// ------------------------------------------------------------------- fp8 counts

constexpr const char *on_name = "fp8.counting", *counts_name = "fp8.counts", *peaks_name = "fp8.peaks";
constexpr std::int64_t numbers_each = 3;

// Adds the ops that count the factors of one segment.
class SegmentCounts {
 public:
  SegmentCounts(Program& program, Id segment, std::int64_t place)
      : program_(program), segment_(segment), place_(place) {
    for (const FunctionKind function : microbatch_functions)
      for (const Id op : program.segment(segment).ops(function))
        if (program.op(op).def->in_blocks && program.attr(op, "fp8") != 0) note(op, function);
  }

  // Returns the place behind the segment's.
  std::int64_t end() const {
    return place_ + static_cast<std::int64_t>(found_.size()) * program_.segment(segment_).repeat;
  }

  void add(Id on, Id counts, Id peaks) {
    std::int64_t place = place_;
    for (const Found& found : found_) {
      const auto attrs = attrs_of(found, place);
      for (const auto& [kind, into] :
           {std::pair(base_ops::count_fp8_codes, counts), {base_ops::peak_fp8_scales, peaks}})
        program_.add_op(segment_, found.function, Part::input, kind, {found.factor.value, on, into}, attrs,
                        behind(found));
      place += program_.segment(segment_).repeat;
    }
  }

 private:
  struct Found {
    Fp8Factor factor;
    FunctionKind function;
    Id last_reader;  // in that function
  };

  void note(Id op, FunctionKind function) {
    for (const Fp8Factor& factor : fp8_factors_of(program_, program_.op(op))) {
      // Where forward has it, the value need not be there for backward.
      for (Found& found : found_)
        if (found.factor.value == factor.value && found.function == function) found.last_reader = op;
      if (std::any_of(found_.begin(), found_.end(),
                      [&](const Found& found) { return key(found.factor) == key(factor); }))
        continue;
      const auto same = std::find_if(found_.begin(), found_.end(),
                                     [&](const Found& found) { return found.factor.value == factor.value; });
      found_.push_back(same == found_.end() ? Found{factor, function, op}
                                            : Found{factor, same->function, same->last_reader});
    }
  }

  std::array<AttrValue, 6> attrs_of(const Found& found, std::int64_t place) const {
    const auto same = [&](const char* name) {
      const Op& op = program_.op(found.last_reader);
      return AttrValue{name, op.has_attr(name) ? program_.attr(found.last_reader, name) : 0.0};
    };
    const double weight = found.factor.weight == none ? -1.0 : static_cast<double>(found.factor.weight);
    return {AttrValue{"in_dims", static_cast<double>(found.factor.in_dims)},
            same("fp8_from"),
            same("fp8_until"),
            AttrValue{"blocks", static_cast<double>(found.factor.blocks)},
            AttrValue{"place", static_cast<double>(place)},
            AttrValue{"weight", weight}};
  }

  // Counting comes behind products, which devices fuse with each other and with what is in front of them.
  Id behind(const Found& found) const {
    const std::vector<Id>& ops = program_.segment(segment_).ops(found.function);
    const auto next = std::find(ops.begin(), ops.end(), found.last_reader) + 1;
    return next == ops.end() ? none : *next;
  }

  Program& program_;
  const Id segment_;
  const std::int64_t place_;
  std::vector<Found> found_;
};

Id add_counts(Program& program, const char* name, std::int64_t places) {
  Value value;
  value.name = name;
  value.role = Role::runtime;
  value.dtype = DType::f64;
  value.dims = {{"place", places}, {"number", numbers_each}};
  value.segment = program.step_segment();
  const Id counts = program.add_value(std::move(value));
  program.add_op(program.step_segment(), FunctionKind::begin, Part::input, base_ops::zero, {counts}, {});
  return counts;
}

// Puts together what the ranks of all axes have counted, and reports it.
void add_total(Program& program, Id counts, const char* exchange) {
  const Id step = program.step_segment();
  for (AxisId axis = 0; axis < program.mesh().size(); ++axis) {
    const AttrValue on_axis = axis_attr(axis);
    if (program.mesh().extent(axis) > 1)
      program.add_op(step, FunctionKind::finish, Part::input, exchange, {counts}, std::span(&on_axis, 1));
  }
  Value whole = program.value(counts), reported = whole;
  whole.name += ".total";
  reported.name += ".reported";
  reported.role = Role::staging;
  const Id total = program.add_value(std::move(whole)), out = program.add_value(std::move(reported));
  program.add_op(step, FunctionKind::finish, Part::input, base_ops::total, {counts, total}, {});
  program.add_op(step, FunctionKind::report, Part::input, base_ops::copy, {total, out}, {});
}

std::string_view without(std::string_view name, std::string_view end) {
  return name.ends_with(end) ? name.substr(0, name.size() - end.size()) : name;
}

// Says what a product does with a factor. Where ranks gather an input again for backward, it is counted
// there.
const char* part_of(const Program& program, Id id) {
  const Op& op = program.op(id);
  if (program.value(op.operands.front()).role == Role::parameter) return "weight";
  switch (static_cast<Fp8Blocks>(program.attr(id, "blocks"))) {
    case Fp8Blocks::squares: return "input_for_weight";
    case Fp8Blocks::columns: return "gradient_for_weight";
    default: return op.function == FunctionKind::forward ? "input" : "gradient";
  }
}

// Names a factor: "block.fp8.attention.qkv.gradient_for_weight".
std::string name_of_factor(const Program& program, Id id) {
  const Op& op = program.op(id);
  const auto weight = static_cast<std::int64_t>(program.attr(id, "weight"));
  const Value& of = program.value(weight < 0 ? op.operands.front() : static_cast<Id>(weight));
  return detail::concat(program.segment(op.segment).name, ".fp8.", without(of.name, ".weight"), ".",
                        part_of(program, id));
}

Id staging_named(const Program& program, const std::string& name) {
  for (const Id id : program.segment(program.step_segment()).values)
    if (program.value(id).role == Role::staging && program.value(id).name == name) return id;
  return none;
}

}  // namespace

void count_in_fp8(Program& program) {
  std::vector<SegmentCounts> segments;
  std::int64_t places = 0;
  for (Id id = program.step_segment() + 1; id < program.segment_count(); ++id) {
    segments.emplace_back(program, id, places);
    places = segments.back().end();
  }
  if (places == 0) return;
  const Id on = add_staged_scalar(program, on_name, {}), counts = add_counts(program, counts_name, places),
           peaks = add_counts(program, peaks_name, places);
  for (SegmentCounts& segment : segments) segment.add(on, counts, peaks);
  add_total(program, counts, base_ops::all_reduce_update);
  add_total(program, peaks, base_ops::all_reduce_max_update);
}

std::vector<CountedFactor> counted_factors(const Program& program) {
  std::vector<CountedFactor> factors;
  for (Id segment = program.step_segment() + 1; segment < program.segment_count(); ++segment)
    for (const FunctionKind function : microbatch_functions)
      for (const Id id : program.segment(segment).ops(function))
        if (program.op(id).is(base_ops::count_fp8_codes))
          factors.push_back({name_of_factor(program, id),
                             static_cast<std::int64_t>(program.attr(id, "place")),
                             program.segment(segment).repeat});
  std::sort(factors.begin(), factors.end(),
            [](const CountedFactor& a, const CountedFactor& b) { return a.name < b.name; });
  return factors;
}

StagedFp8Counts staged_fp8_counts(const Program& program) {
  return {staging_named(program, std::string(on_name) + ".staged"),
          staging_named(program, std::string(counts_name) + ".reported"),
          staging_named(program, std::string(peaks_name) + ".reported")};
}

}  // namespace prun
