// Implements class Program: its ops, each checked against its rule when it is added or changed.
#include <algorithm>

#include "base/require.hpp"
#include "base/text.hpp"
#include "program/step_program.hpp"

namespace prun {
namespace {

template <class DimsOf>
OpShape shape_of(const Program& program, const Op& op, DimsOf&& dims_of) {
  OpShape shape;
  shape.count = static_cast<std::int32_t>(op.operands.size());
  shape.attrs = op.attrs.data();
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    if (op.operands[i] == none) continue;
    const std::vector<Dim>& dims = dims_of(op.operands[i]);
    OperandShape& o = shape.operand[i];
    o.present = true;
    o.dtype = program.value(op.operands[i]).dtype;
    o.rank = static_cast<std::int32_t>(dims.size());
    std::copy(dims.begin(), dims.end(), o.dims);
  }
  return shape;
}

const OpDef& find_op(const OpRegistry& registry, std::string_view kind, const SegmentData& segment) {
  if (registry.contains(kind)) return registry.find(kind);
  throw_error(ErrorCode::not_found, "segment '", segment.name, "': there is no op '", kind, "'",
              did_you_mean(kind, registry.kinds()),
              "; one of an op plugin is there where the recipe names that: [plugins] ops = [\"...\"]");
}

// Makes the list of operands fit the definition: optional operands at the end may be left out, and none may
// be listed where an op has no such one, so that an op can stand in for another that takes more.
void fit(Op& op) {
  const OpDef& def = *op.def;
  std::vector<Id>& list = op.operands;
  while (list.size() > def.operand_count && list.back() == none) list.pop_back();
  while (list.size() < def.operand_count && def.operands[list.size()].optional) list.push_back(none);
}

// Returns how a copy lies: one of a gradient, in a function behind the sums over ranks, is complete.
std::vector<AxisPlacement> placement_of_copy(const Value& value, FunctionKind function) {
  std::vector<AxisPlacement> placement = value.placement;
  const bool summed =
      function == FunctionKind::norm || function == FunctionKind::diagnose || is_optimizer(function);
  if (summed && value.role == Role::gradient) complete_sums(placement);
  return placement;
}

}  // namespace

OpShape Program::shape(const Op& op) const {
  return shape_of(*this, op, [this](Id id) -> const std::vector<Dim>& { return value(id).dims; });
}

OpShape Program::local_shape(const Op& op) const {
  return shape_of(*this, op, [this](Id id) { return local_dims(id); });
}

OpShape Program::infer(const Op& op) const {
  OpShape shape = this->shape(op);
  const Status status = op.def->rule(&shape);
  if (!status.ok())
    throw_error(ErrorCode::bad_input, "segment '", segment(op.segment).name, "', op '", op.kind(),
                "': ", status.message);
  return shape;
}

void Program::bind_attrs(Op& op, std::span<const AttrValue> attrs) const {
  for (std::uint64_t i = 0; i < op.def->attr_count; ++i) op.attrs.push_back(op.def->attrs[i].fallback);
  for (const AttrValue& given : attrs) {
    std::uint64_t i = 0;
    while (i < op.def->attr_count && std::string_view(op.def->attrs[i].name) != given.name) ++i;
    if (i == op.def->attr_count)
      throw_error(ErrorCode::bad_input, "op '", op.kind(), "' has no attribute '", given.name, "'");
    if (op.def->attrs[i].real)
      op.attrs[i].f = given.value;
    else
      op.attrs[i].i = static_cast<std::int64_t>(given.value);
  }
}

void Program::check_operands(const Op& op) const {
  if (op.operands.size() != op.def->operand_count)
    throw_error(ErrorCode::bad_input, "op '", op.kind(), "' takes ", op.def->operand_count, " operands, not ",
                op.operands.size());
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    if (op.operands[i] == none && !op.def->operands[i].optional && op.access(i) != Access::write)
      throw_error(ErrorCode::bad_input, "op '", op.kind(), "': operand '", op.def->operands[i].name,
                  "' is missing");
    if (op.operands[i] != none) value(op.operands[i]);
  }
}

Id Program::place(Op op, Id before) {
  const Id id = static_cast<Id>(ops_.size());
  std::vector<Id>& list = segment(op.segment).ops(op.function);
  const auto at = before == none ? list.end() : std::find(list.begin(), list.end(), before);
  require(before == none || at != list.end(), "op ", before, " is not in that function");
  list.insert(at, id);
  ops_.push_back(std::move(op));
  return id;
}

Value Program::output_value(const Op& op, std::size_t index, const OperandShape& shape) const {
  Value value;
  value.name = std::string(op.kind()) + "." + op.def->operands[index].name;
  value.dtype = shape.dtype;
  value.dims.assign(shape.dims, shape.dims + shape.rank);
  value.segment = op.segment;
  return value;
}

Id Program::add_op(Id segment_id, FunctionKind function, Part part, std::string_view kind,
                   std::vector<Id> operands, std::span<const AttrValue> attrs, Id before) {
  Op op{&find_op(*registry_, kind, segment(segment_id)), segment_id, function, part, std::move(operands), {}};
  bind_attrs(op, attrs);
  fit(op);
  check_operands(op);
  check_shapes(op);
  return place(std::move(op), before);
}

void Program::check_shapes(const Op& op) const {
  const OpShape given = shape(op), right = infer(op);
  for (int i = 0; i < given.count; ++i) {
    const OperandShape &a = given.operand[i], &b = right.operand[i];
    const bool same = a.dtype == b.dtype && a.rank == b.rank && std::equal(a.dims, a.dims + a.rank, b.dims);
    require(!a.present || same, "op '", op.kind(), "': operand '", op.def->operands[i].name,
            "' has a wrong shape");
  }
}

std::vector<Id> Program::add_op_creating(Id segment_id, FunctionKind function, Part part,
                                         std::string_view kind, std::span<const Id> inputs,
                                         std::span<const AttrValue> attrs, Id before) {
  Op op{&find_op(*registry_, kind, segment(segment_id)), segment_id, function, part, {}, {}};
  bind_attrs(op, attrs);
  std::size_t next = 0;
  for (std::uint64_t i = 0; i < op.def->operand_count; ++i) {
    const bool creates = op.access(i) == Access::write;
    // Optional operands at the end may be left out of the list.
    op.operands.push_back(!creates && next < inputs.size() ? inputs[next++] : none);
  }
  if (next != inputs.size())
    throw_error(ErrorCode::bad_input, "op '", kind, "' takes ", next, " operands, ", inputs.size(), " given");
  check_operands(op);
  const OpShape shape = infer(op);
  std::vector<Id> created;
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    if (op.access(i) != Access::write || op.def->operands[i].optional) continue;
    require(shape.operand[i].present, "op '", kind, "': its rule gives no shape to '",
            op.def->operands[i].name, "'");
    Value output = output_value(op, i, shape.operand[i]);
    if (op.def->copies) output.placement = placement_of_copy(value(op.operands[0]), function);
    op.operands[i] = add_value(std::move(output));
    created.push_back(op.operands[i]);
  }
  place(std::move(op), before);
  return created;
}

Id Program::add_result(Id id, std::size_t index) {
  const Op& maker = op(id);
  require(index < maker.operands.size() && maker.access(index) == Access::write &&
              maker.def->operands[index].optional && maker.operands[index] == none,
          "op '", maker.kind(), "' leaves no result ", index, " out");
  const OperandShape shape = infer(maker).operand[index];
  require(shape.present, "op '", maker.kind(), "': its rule gives no shape to '",
          maker.def->operands[index].name, "'");
  const Id result = add_value(output_value(maker, index, shape));
  op(id).operands[index] = result;
  return result;
}

Id Program::add_copy(Id id, FunctionKind function, std::vector<Id> operands, Id before) {
  Op copy = op(id);
  copy.function = function;
  copy.operands = std::move(operands);
  check_operands(copy);
  infer(copy);
  return place(std::move(copy), before);
}

void Program::replace_operand(Id id, std::size_t index, Id value_id) {
  Op& target = op(id);
  require(index < target.operands.size(), "op '", target.kind(), "' has no operand ", index);
  const Id old = target.operands[index];
  target.operands[index] = value_id;
  try {
    check_operands(target);
    infer(target);
  } catch (const Error&) {
    target.operands[index] = old;
    throw;
  }
}

void Program::replace_in(std::span<const Id> ops, Id value, Id by) {
  for (const Id id : ops)
    for (std::size_t i = 0; i < op(id).operands.size(); ++i)
      if (op(id).operands[i] == value) replace_operand(id, i, by);
}

void Program::replace_in(Id id, std::span<const FunctionKind> functions, Id value, Id by) {
  for (const FunctionKind kind : functions) replace_in(segment(id).ops(kind), value, by);
}

// Gives what an op writes the shapes that its rule gives, and checks all else that it has.
void Program::reshape_results(const Op& op) {
  check_operands(op);
  const OpShape right = infer(op);
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    if (op.operands[i] == none || op.access(i) != Access::write) continue;
    const OperandShape& shape = right.operand[i];
    value(op.operands[i]).dtype = shape.dtype;
    value(op.operands[i]).dims.assign(shape.dims, shape.dims + shape.rank);
  }
  check_shapes(op);
}

void Program::replace_value(Id old, Id by) {
  const std::string name = value(old).name;
  const Id home = value(by).segment;
  if (shapes_are_settled_)
    throw_error(ErrorCode::bad_input, "cannot replace '", name,
                "': shapes are final behind phase model; call replace_value in that phase");
  const std::vector<Id>& forward = segment(home).ops(FunctionKind::forward);
  const auto writes = [&](Id id) {
    for (std::size_t i = 0; i < op(id).operands.size(); ++i)
      if (op(id).operands[i] == by && op(id).access(i) == Access::write) return true;
    return false;
  };
  auto at = std::find_if(forward.begin(), forward.end(), writes);
  if (at == forward.end())
    throw_error(ErrorCode::bad_input, "cannot replace '", name, "' by '", value(by).name,
                "': no op of a segment's forward writes that");
  bool read = segment(home).outgoing == old;
  if (read) segment(home).outgoing = by;
  while (++at != forward.end()) {
    Op& reader = op(*at);
    for (std::size_t i = 0; i < reader.operands.size(); ++i) {
      if (reader.operands[i] != old) continue;
      if (reader.access(i) != Access::read)
        throw_error(ErrorCode::bad_input, "cannot replace '", name, "': op '", reader.kind(),
                    "' changes it in place");
      reader.operands[i] = by;
      read = true;
    }
    reshape_results(reader);
  }
  if (!read)
    throw_error(ErrorCode::bad_input, "cannot replace '", name, "': no op behind the one that writes '",
                value(by).name, "' reads it");
}

bool Program::hands_on_alike(Id id, Id incoming) const {
  if (incoming == none || segment(id).outgoing == none) return true;
  const Value &in = value(incoming), &out = value(segment(id).outgoing);
  return in.dims == out.dims && in.dtype == out.dtype;
}

void Program::settle_shapes() {
  for (Id id = step_segment() + 1; id < segment_count(); ++id) {
    const SegmentData& from = segment(id);
    const Id next = id + 1 < segment_count() ? segment(id + 1).incoming : none;
    if (!hands_on_alike(id, next) || (from.repeat > 1 && !hands_on_alike(id, from.incoming)))
      throw_error(ErrorCode::bad_input, "cannot hand on '", value(from.outgoing).name, "' from segment '",
                  from.name,
                  "': the next segment takes another shape or type; hand on what has those of the value "
                  "before replace_value");
    for (const Id op : from.ops(FunctionKind::forward)) check_shapes(this->op(op));
  }
  shapes_are_settled_ = true;
}

void Program::replace_op(Id id, std::string_view kind, std::vector<Id> operands,
                         std::span<const AttrValue> attrs) {
  const Op& old = op(id);
  Op fresh{&find_op(*registry_, kind, segment(old.segment)),
           old.segment,
           old.function,
           old.part,
           std::move(operands),
           {},
           old.again};
  bind_attrs(fresh, attrs);
  fit(fresh);
  check_operands(fresh);
  check_shapes(fresh);
  op(id) = std::move(fresh);
}

void Program::erase_op(Id id) {
  Op& target = op(id);
  std::erase(segment(target.segment).ops(target.function), id);
  target.def = nullptr;
}

void Program::set_attr(Id id, std::string_view name, double value) {
  Op& target = op(id);
  for (std::uint64_t i = 0; i < target.def->attr_count; ++i) {
    if (target.def->attrs[i].name != name) continue;
    if (target.def->attrs[i].real)
      target.attrs[i].f = value;
    else
      target.attrs[i].i = static_cast<std::int64_t>(value);
    infer(target);
    return;
  }
  throw_error(ErrorCode::bad_input, "op '", target.kind(), "' has no attribute '", name, "'");
}

double Program::attr(Id id, std::string_view name) const {
  const Op& source = op(id);
  for (std::uint64_t i = 0; i < source.def->attr_count; ++i)
    if (source.def->attrs[i].name == name)
      return source.def->attrs[i].real ? source.attrs[i].f : static_cast<double>(source.attrs[i].i);
  throw_error(ErrorCode::bad_input, "op '", source.kind(), "' has no attribute '", name, "'");
}

}  // namespace prun
