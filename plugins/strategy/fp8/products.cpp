// Decides which ops multiply in fp8, and counts what becomes of their factors. The program is placed by then,
// so that it is known what ranks share out.
#include "passes.hpp"

namespace prun::fp8 {

bool has_attr(const OpInfo& op, std::string_view name) {
  return std::any_of(op.def->attrs, op.def->attrs + op.def->attr_count,
                     [&](const AttrDef& attr) { return attr.name == name; });
}

bool reads(const OpInfo& op, Id value) {
  for (std::size_t i = 0; i < op.operands.size; ++i)
    if (op.operands[i] == value && access(op, i) == Access::read) return true;
  return false;
}

bool multiplies(ProgramRef program, Id op) {
  return program.op(op).def->in_blocks && program.attr(op, "fp8") != 0;
}

bool multiplies_everywhere(ProgramRef program, Id op) {
  if (!multiplies(program, op)) return false;
  const OpInfo info = program.op(op);
  for (const char* some : {"fp8_from", "fp8_until"})
    if (has_attr(info, some) && program.attr(op, some) != 0) return false;
  return true;
}

Id behind(const Segment& segment, FunctionKind function, Id op) {
  const std::vector<Id> ops = segment.operations(function);
  const auto next = std::find(ops.begin(), ops.end(), op) + 1;
  return next == ops.end() ? none : *next;
}

OperandShape shape_of(const ValueInfo& value) {
  OperandShape shape;
  shape.present = true;
  shape.dtype = value.dtype;
  shape.rank = value.rank;
  std::copy(value.dims, value.dims + value.rank, shape.dims);
  return shape;
}

namespace {

// ------------------------------------------------------------------- products

std::vector<Id> all_operations(const Segment& segment) {
  std::vector<Id> all;
  for (int kind = 0; kind < function_kinds; ++kind)
    for (const Id op : segment.operations(static_cast<FunctionKind>(kind))) all.push_back(op);
  return all;
}

[[noreturn]] void refuse_cut(ProgramRef program, const OpInfo& op, const std::string& why) {
  throw_error(ErrorCode::unsupported, "cannot quantize op '", op.kind.view(), "' of segment '",
              Segment(program, op.segment).info().name.view(), "' to fp8 in blocks of ", fp8_block,
              " elements: it ", why, "; split it over fewer ranks, or leave strategy fp8 out");
}

void check_keeps_blocks(ProgramRef program, Id id, const OpShape& whole) {
  const OpInfo op = program.op(id);
  for (const Id operand : op.operands)
    if (operand != none && program.value(operand).part)
      refuse_cut(program, op,
                 detail::concat("has '", program.value(operand).name.view(), "', which is a part of one"));
  const OpShape part = program.local_shape(id);
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

// Sequences in another order are cut into blocks in the order in which they are stored.
void check_order(ProgramRef program) {
  const std::int64_t chunk = program.step_context().sequence_chunk;
  if (chunk % fp8_block != 0)
    throw_error(ErrorCode::unsupported, "cannot quantize to fp8 in blocks of ", fp8_block,
                " elements: ranks split sequences into chunks of ", chunk,
                " positions; split them over fewer ranks, or leave strategy fp8 out");
}

std::vector<Id> ops_in_fp8(const Segment& segment) {
  std::vector<Id> ops = all_operations(segment);
  std::erase_if(ops, [&](Id op) { return !multiplies(segment.program(), op); });
  return ops;
}

// Has the products of the segment's layers in [from, until) alone multiply in fp8.
void leave_layers(const Segment& segment, std::int64_t from, std::int64_t until) {
  const ProgramRef program = segment.program();
  const std::int64_t all = segment.info().repeat;
  for (const Id id : ops_in_fp8(segment)) {
    if (from >= until) {
      program.set_attr(id, "fp8", 0);
    } else if (from > 0 || until < all) {
      const OpInfo op = program.op(id);
      if (!has_attr(op, "fp8_from") || !has_attr(op, "fp8_until"))
        throw_error(
            ErrorCode::unsupported, "cannot keep the first or last layers out of fp8: op '", op.kind.view(),
            "' has no attributes 'fp8_from' and 'fp8_until'; leave first_in_compute and last_in_compute out");
      program.set_attr(id, "fp8_from", static_cast<double>(from));
      program.set_attr(id, "fp8_until", static_cast<double>(until < all ? until : 0));
    }
  }
}

void leave_layers(ProgramRef program, const LayersInCompute& layers) {
  const std::vector<Segment> segments = program.segments();
  const std::size_t first = 1, last = segments.size() - 1;  // segment 0 is the step
  std::int64_t all = 0, at = 0;
  for (std::size_t id = first + 1; id < last; ++id)
    if (!ops_in_fp8(segments[id]).empty()) all += segments[id].info().repeat;
  if (layers.first + layers.last >= all)
    throw_error(ErrorCode::bad_input, "cannot apply first_in_compute = ", layers.first,
                " and last_in_compute = ", layers.last, ": of ", all,
                " layers none is left with products in fp8; choose fewer, or leave strategy fp8 out");
  if (layers.first > 0) leave_layers(segments[first], 0, 0);
  if (layers.last > 0) leave_layers(segments[last], 0, 0);
  for (std::size_t id = first + 1; id < last; ++id) {
    const std::int64_t repeat = segments[id].info().repeat;
    if (ops_in_fp8(segments[id]).empty()) continue;
    leave_layers(segments[id], std::clamp<std::int64_t>(layers.first - at, 0, repeat),
                 std::clamp<std::int64_t>(all - layers.last - at, 0, repeat));
    at += repeat;
  }
}

}  // namespace

void multiply_in_fp8(ProgramRef program, LayersInCompute layers) {
  check_order(program);
  bool any = false;
  for (const Segment& segment : program.segments())
    for (const Id id : all_operations(segment)) {
      const OpInfo op = program.op(id);
      if (!op.def->in_blocks) continue;
      const OpShape whole = program.shape(id);
      if (!op.def->in_blocks(&whole, &whole)) continue;
      check_keeps_blocks(program, id, whole);
      program.set_attr(id, "fp8", 1);
      any = true;
    }
  if (!any)
    throw_error(ErrorCode::bad_input,
                "cannot quantize to fp8: no product of the model divides into blocks of ", fp8_block,
                ": widths must be multiples of ", fp8_grain, " and at least ", fp8_block,
                ", the length of a sequence a multiple of ", fp8_block, "; leave strategy fp8 out");
  if (layers.first > 0 || layers.last > 0) leave_layers(program, layers);
}

namespace {

bool is_summed(const OpShape& shape, const Dim& dim) {
  return std::find(std::begin(shape.sums), std::end(shape.sums), dim.name) != std::end(shape.sums);
}

// Returns the parameter that the op multiplies, or computes the gradient of.
Id weight_of(ProgramRef program, const OpInfo& op) {
  for (const Id operand : op.operands)
    if (operand != none && program.value(operand).role == Role::parameter) return operand;
  for (const Segment& segment : program.segments())
    for (const Id id : segment.values())
      if (const ValueInfo value = program.value(id); value.role == Role::parameter && value.gradient != none)
        for (std::size_t i = 0; i < op.operands.size; ++i)
          if (op.operands[i] == value.gradient && access(op, i) == Access::update) return id;
  return none;
}

}  // namespace

std::vector<Factor> factors_of(ProgramRef program, Id id) {
  const OpInfo op = program.op(id);
  OpShape shape = program.shape(id);
  raise(op.def->rule(&shape));
  std::vector<Factor> factors;
  const Id weight = weight_of(program, op);
  std::size_t square = 0;
  for (std::size_t i = 0; i < op.operands.size; ++i) {
    if (op.operands[i] == none || access(op, i) != Access::read) continue;
    const ValueInfo value = program.value(op.operands[i]);
    const auto summed =
        std::count_if(value.dims, value.dims + value.rank, [&](const Dim& d) { return is_summed(shape, d); });
    if (summed == 0) continue;
    const bool last = is_summed(shape, value.dims[value.rank - 1]);
    // A weight that is offloaded is fetched for its use.
    if (value.role == Role::parameter || value.role == Role::fetched || value.dtype == DType::u8)
      square = factors.size();
    factors.push_back({op.operands[i], last ? Fp8Blocks::rows : Fp8Blocks::columns,
                       last ? summed : value.rank - summed, weight});
  }
  if (!factors.empty()) factors[square].blocks = Fp8Blocks::squares;
  return factors;
}

namespace {

// ------------------------------------------------------------------- counts

// Counts the factors of one segment.
class SegmentCounts {
 public:
  explicit SegmentCounts(const Segment& segment) : segment_(segment), program_(segment.program()) {
    for (const FunctionKind function : microbatch_functions)
      for (const Id op : segment.operations(function))
        if (multiplies(program_, op)) note(op, function);
  }

  void list(std::vector<std::string>& names, std::vector<std::int64_t>& layers) const {
    for (const Found& found : found_) {
      names.push_back(name_of(found));
      layers.push_back(segment_.info().repeat);
    }
  }

  // Adds the ops; the rows of the segment's factors begin at `row`. Returns the row behind them.
  std::int64_t add(const QuantizationCounts& counts, std::int64_t row) const {
    for (const Found& found : found_) {
      const auto attrs = attrs_of(found, row);
      for (const auto& [kind, into] :
           {std::pair("count_fp8_codes", counts.counts), {"peak_fp8_scales", counts.peaks}}) {
        const Id operands[] = {found.factor.value, counts.on, into};
        // Counting comes behind products, which devices fuse with each other and with what is in front of
        // them.
        raise(program_.api().op(program_.handle(), segment_.id(), found.function,
                                behind(segment_, found.function, found.last_reader), kind, {operands, 3},
                                {attrs.data(), attrs.size()}, nullptr, 0));
      }
      row += segment_.info().repeat;
    }
    return row;
  }

 private:
  struct Found {
    Factor factor;
    FunctionKind function;
    Id last_reader;  // in that function
  };

  void note(Id op, FunctionKind function) {
    for (const Factor& factor : factors_of(program_, op)) {
      // Where forward has it, the value need not be there for backward.
      for (Found& found : found_)
        if (found.factor.value == factor.value && found.function == function) found.last_reader = op;
      const auto is_known = [&](const Found& found) {
        const Factor& known = found.factor;
        return known.value == factor.value && known.blocks == factor.blocks &&
               known.in_dims == factor.in_dims;
      };
      if (std::any_of(found_.begin(), found_.end(), is_known)) continue;
      const auto same = std::find_if(found_.begin(), found_.end(),
                                     [&](const Found& found) { return found.factor.value == factor.value; });
      found_.push_back(same == found_.end() ? Found{factor, function, op}
                                            : Found{factor, same->function, same->last_reader});
    }
  }

  std::array<AttrValue, 6> attrs_of(const Found& found, std::int64_t row) const {
    const auto same = [&](const char* name) {
      const bool has = has_attr(program_.op(found.last_reader), name);
      return AttrValue{name, has ? program_.attr(found.last_reader, name) : 0.0};
    };
    const double weight = found.factor.weight == none ? -1.0 : static_cast<double>(found.factor.weight);
    return {AttrValue{"in_dims", static_cast<double>(found.factor.in_dims)},
            same("fp8_from"),
            same("fp8_until"),
            AttrValue{"blocks", static_cast<double>(found.factor.blocks)},
            AttrValue{"place", static_cast<double>(row)},
            AttrValue{"weight", weight}};
  }

  // Says what a product does with a factor. Where ranks gather an input again for backward, it is counted
  // there.
  const char* part_of(const Found& found) const {
    if (program_.value(found.factor.value).role == Role::parameter) return "weight";
    switch (found.factor.blocks) {
      case Fp8Blocks::squares: return "input_for_weight";
      case Fp8Blocks::columns: return "gradient_for_weight";
      default: return found.function == FunctionKind::forward ? "input" : "gradient";
    }
  }

  // Names a factor: "block.fp8.attention.qkv.gradient_for_weight".
  std::string name_of(const Found& found) const {
    const Factor& factor = found.factor;
    std::string_view of = program_.value(factor.weight == none ? factor.value : factor.weight).name.view();
    if (constexpr std::string_view end = ".weight"; of.ends_with(end)) of.remove_suffix(end.size());
    return detail::concat(segment_.info().name.view(), ".fp8.", of, ".", part_of(found));
  }

  const Segment segment_;
  const ProgramRef program_;
  std::vector<Found> found_;
};

}  // namespace

void count_in_fp8(ProgramRef program, std::int64_t every, double bound) {
  std::vector<SegmentCounts> segments;
  std::vector<std::string> names;
  std::vector<std::int64_t> layers;
  for (const Segment& segment : program.segments()) segments.emplace_back(segment).list(names, layers);
  if (names.empty()) return;
  std::vector<CountedValue> values;
  for (std::size_t i = 0; i < names.size(); ++i) values.push_back({names[i], layers[i]});
  const QuantizationCounts counts = program.count_quantized(
      {.name = "fp8", .values = {values.data(), values.size()}, .every = every, .bound = bound});
  std::int64_t row = 0;
  for (const SegmentCounts& segment : segments) row = segment.add(counts, row);
}

}  // namespace prun::fp8
