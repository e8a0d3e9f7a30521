// Implements class Program: its ops, each checked against its rule when it is added or changed.
#include <algorithm>

#include "base/require.hpp"
#include "base/text.hpp"
#include "program/step_program.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- step program ops

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

namespace {

// ------------------------------------------------------------------- step program state
// Implements class Program: state that strategies keep, how values lie, and what strategies edit.

bool is_zero(const Init& init) { return init.kind == Init::Kind::constant && init.value == 0; }

bool has(const std::vector<Dim>& dims, const Name& name) {
  return std::any_of(dims.begin(), dims.end(), [&](const Dim& dim) { return dim.name == name; });
}

// Refuses what a description cannot mean, wherever the state lies.
void check_described(const Value& state, const KeptState& described) {
  const auto refuse = [&](const char* what) {
    throw_error(ErrorCode::bad_input, "state '", state.name, "' ", what);
  };
  const bool partial = std::any_of(state.placement.begin(), state.placement.end(),
                                   [](const AxisPlacement& lies) { return lies.is_partial(); });
  if (described.starts_as != none && !is_zero(described.init))
    refuse("is to start as a parameter does, and as other numbers; leave out one of them");
  if (state.is_apart() && (!is_zero(described.init) || described.starts_as != none))
    refuse("is to start as other numbers than zeros, and is not alike on all ranks; start from zeros");
  if (described.on_resize == OnResize::sum && !partial)
    refuse("is to be summed where the mesh changes, and is no partial sum; take OnResize::refuse or ::anew");
  if (!is_float(state.dtype))
    refuse("is to hold numbers that are not floating-point; take fp64, fp32 or bf16");
}

// Refuses a state that is to start as a parameter of another shape, or of another segment.
void check_starts_as(const Value& state, const Value& parameter) {
  if (parameter.role != Role::parameter || parameter.segment != state.segment ||
      parameter.dims != state.dims || parameter.part)
    throw_error(ErrorCode::bad_input, "cannot start state '", state.name, "' as '", parameter.name,
                "': that is no parameter of its segment with its dimensions");
}

// Refuses a state beside a copy of a table that is no copy of the one beside the table.
void check_alike(const Value& copy, const Value& original) {
  if (copy.dims != original.dims || copy.dtype != original.dtype || copy.placement != original.placement ||
      copy.compared != original.compared || copy.on_resize != original.on_resize)
    throw_error(ErrorCode::bad_input, "cannot keep state '", copy.name, "' and '", original.name,
                "' for one table on two stages: they differ in shape, type or placement; declare them "
                "identically, and let both hold the same, as what is computed after `tie` does");
}

}  // namespace

bool Value::is_apart() const {
  return (role == Role::state || role == Role::parameter) &&
         std::any_of(placement.begin(), placement.end(),
                     [](const AxisPlacement& lies) { return lies.is_partial() || lies.is_varying(); });
}

Id Program::add_state(Id segment_id, const KeptState& described) {
  const std::vector<Id> all = parameters();
  const bool trained = std::any_of(all.begin(), all.end(), [&](Id id) { return value(id).gradient != none; });
  if (!placed_ && trained)
    throw_error(ErrorCode::bad_input, "cannot declare state '", described.name.view(),
                "' in this phase; declare it in phase model, as part of the model, or in phase placed, with "
                "a placement");
  if (segment_id == step_segment())
    throw_error(ErrorCode::bad_input, "cannot declare state '", described.name.view(),
                "' in the step; declare it in a segment of the model");
  if (!placed_) {
    if (described.lies.size > 0 || described.typed || described.like != none || described.starts_as != none)
      throw_error(ErrorCode::bad_input, "cannot place, type or start state '", described.name.view(),
                  "' in phase model: there each rank has all of it in the type of statistics; declare it in "
                  "phase placed");
    const Id id = add_parameter(segment_id, {described.name, described.dims, described.init, false});
    values_[id].dtype = OpShape::statistics(precision_.compute);
    values_[id].frozen = values_[id].untrained = true;
    return id;
  }
  for (const Id other : segment(segment_id).values)
    if (values_[other].name == described.name.view() &&
        (values_[other].role == Role::parameter || values_[other].role == Role::state))
      throw_error(ErrorCode::bad_input, "segment '", segment(segment_id).name, "' has '", values_[other].name,
                  "' already; give the state another name");
  Value state;
  state.name = described.name.view();
  state.role = Role::state;
  state.dtype = described.typed ? described.dtype : OpShape::statistics(precision_.compute);
  state.dims.assign(described.dims.begin(), described.dims.end());
  state.segment = segment_id;
  state.init = described.init;
  state.declared = true;
  state.compared = described.compared;
  state.on_resize = described.on_resize;
  state.starts_as = described.starts_as;
  state.added_by = writer_;
  if (described.starts_as == none) state.starts_anew = writer_ + ".plugin";
  state.copy_of = original_of(state, described.like);
  lay(state, described);
  if (state.copy_of != none) check_alike(state, value(state.copy_of));
  check_described(state, described);
  if (state.starts_as != none) check_starts_as(state, value(state.starts_as));
  return add_value(std::move(state));
}

// Returns, for a state kept beside another stage's copy of a parameter, the state that is kept beside the
// parameter itself: both have one name in checkpoints.
Id Program::original_of(const Value& state, Id like) const {
  for (const Id copy : parameters()) {
    const Value& parameter = value(copy);
    if (parameter.copy_of == none || like == none || (like != copy && like != parameter.gradient)) continue;
    const Value &original = value(parameter.copy_of), &beside = value(like);
    const std::string& begin = like == copy ? original.name : value(original.gradient).name;
    const std::string name =
        state.name.starts_with(beside.name) ? begin + state.name.substr(beside.name.size()) : "";
    for (const Id id : segment(original.segment).values)
      if (value(id).declared && value(id).name == name) return id;
    throw_error(ErrorCode::bad_input, "state '", state.name, "' is like '", beside.name, "', a copy of '",
                segment(original.segment).name, ".", original.name,
                "' that another stage holds, which has no such state; name both as what they are like "
                "with one ending behind it, and declare '",
                begin, "…' first");
  }
  return none;
}

void Program::lay(Value& state, const KeptState& described) const {
  state.placement.resize(mesh_.size());
  if (described.like != none)
    for (AxisId axis = 0; axis < mesh_.size(); ++axis)
      if (const AxisPlacement lies = value(described.like).on(axis);
          lies.is_sharded() && has(state.dims, lies.dim))
        state.placement[axis] = lies;
  for (const Lies& lies : described.lies) {
    const AxisId axis = placed_axis(lies.axis.view());
    state.placement[axis] = AxisPlacement::replicated();
    state.placement[axis] = placement_of(lies, axis, state);
  }
}

AxisId Program::placed_axis(std::string_view name) const {
  if (const AxisId axis = mesh_.find(name); axis != no_axis) return axis;
  std::vector<std::string> names;
  for (const Axis& axis : mesh_.axes()) names.push_back(axis.name);
  throw_error(ErrorCode::bad_input, "the mesh has no axis '", name, "'", did_you_mean(name, names));
}

// Returns how the value is to lie on the axis, as it lies on the others.
AxisPlacement Program::placement_of(const Lies& lies, AxisId axis, const Value& value) const {
  if (lies.kind == PlacementKind::maximum)
    throw_error(ErrorCode::bad_input, "state '", value.name,
                "' cannot be a maximum of what ranks have; keep it "
                "varying, and take the maximum where it is read");
  if (lies.kind != PlacementKind::sharded) return {lies.kind, {}};
  const auto dim = std::find_if(value.dims.begin(), value.dims.end(),
                                [&](const Dim& one) { return one.name == lies.dim; });
  if (dim == value.dims.end())
    throw_error(ErrorCode::bad_input, "'", value.name, "' has no dimension '", lies.dim.view(),
                "' to lie in parts along over axis '", lies.axis.view(), "'");
  std::int64_t parts = mesh_.extent(axis);
  for (AxisId other = 0; other < mesh_.size(); ++other)
    if (value.on(other) == AxisPlacement::sharded(lies.dim)) parts *= mesh_.extent(other);
  if (dim->extent % parts != 0)
    throw_error(ErrorCode::unsupported, "dimension '", lies.dim.view(), "' of '", value.name, "' is ",
                dim->extent, ", which cannot be cut into ", parts, " equal parts for axis '",
                lies.axis.view(), "'");
  return AxisPlacement::sharded(lies.dim);
}

void Program::place_over(Id id, const Lies& lies) {
  const AxisId axis = placed_axis(lies.axis.view());
  const Value& state = value(id);
  const auto refuse = [&](const auto&... why) {
    throw_error(ErrorCode::bad_input, "'", state.name, "' cannot be placed over axis '", lies.axis.view(),
                "': ", why...);
  };
  if (!placed_) refuse("nothing lies anywhere before phase placed; call it in phase state");
  const bool made = flat_parameters_.shown && state.role == Role::activation && state.bucket < 0 &&
                    id >= edits_.first_value;
  if (!made && (state.role != Role::state || state.bucket >= 0))
    refuse("it is no state of a parameter's or strategy's own");
  if (lies.kind != PlacementKind::sharded) refuse("a state that is alike can be cut into parts, and no more");
  if (!state.on(axis).is_replicated())
    refuse("it is ", to_text(state.on(axis)), " there already, so that the request has no effect");
  if (state.block > 1) refuse("it is kept in blocks of 8 bits, which have no dimensions to cut");
  const AxisPlacement wanted = placement_of(lies, axis, state);
  value(id).placement.resize(mesh_.size());
  value(id).placement[axis] = wanted;
  if (mesh_.extent(axis) > 1) note_touched(id);
}

void Program::vary(std::string_view name) {
  if (placed_)
    throw_error(ErrorCode::bad_input, "cannot let parameters vary along axis '", name,
                "' after placement, which decides what is summed over it; call vary in phase shard");
  const AxisId axis = placed_axis(name);
  if (std::count(requests_.varied.begin(), requests_.varied.end(), axis) != 0)
    throw_error(ErrorCode::bad_input, "cannot let parameters vary along axis '", name,
                "' twice; call vary once");
  requests_.varied.push_back(axis);
}

void Program::run_periodically(std::int64_t every) {
  if (every < 1) throw_error(ErrorCode::bad_input, "ops are to run every ", every, " steps; take 1 or more");
  if (requests_.periodic && requests_.periodic->every != every)
    throw_error(ErrorCode::unsupported, "[", requests_.periodic->asked_by, "] has ops run every ",
                requests_.periodic->every, " steps, and this strategy every ", every,
                "; let both have one period");
  if (!requests_.periodic) requests_.periodic = {every, writer_};
}

void Program::evaluate_with(Id parameter_id, Id state_id) {
  const Value &parameter = value(parameter_id), &state = value(state_id);
  const auto refuse = [&](const char* why) {
    throw_error(ErrorCode::bad_input, "'", state.name, "' cannot stand for '", parameter.name, "': ", why);
  };
  if (parameter.role != Role::parameter || parameter.gradient == none)
    refuse("that is no parameter that is trained");
  if (!state.declared || state.is_apart() || state.segment != parameter.segment)
    refuse("it is no state that ranks have alike, which the strategy keeps in the same segment");
  for (AxisId axis = 0; axis < mesh_.size(); ++axis)
    if (!parameter.on(axis).is_varying() && state.on(axis) != parameter.on(axis))
      refuse("it lies otherwise on an axis where the parameter does not vary");
  if (state.dims != parameter.dims || parameter.part) refuse("it has other dimensions");
  if (parameter.stand_in != none) refuse("another state does already");
  value(parameter_id).stand_in = state_id;
  value(state_id).stands_for = parameter_id;
}

void Program::begin_edits() {
  edits_ = checked_edits_;  // without what optimizers have written for passes of the core
  edits_.first_value = value_count();
  edits_.fresh = false;
}

void Program::note_edit(Id id) {
  edits_.ops.insert(id);
  edits_.fresh = true;
  const Op& edited = op(id);
  if (!edited.def) return;  // it is gone
  for (std::size_t i = 0; i < edited.operands.size(); ++i)
    if (edited.operands[i] != none && edited.access(i) != Access::read) note_touched(edited.operands[i]);
}

void Program::note_touched(Id id) {
  if (value(id).role != Role::activation) edits_.touched.insert(id);
  edits_.fresh = true;
}

Lies Program::placement(Id id, std::string_view axis) const {
  const AxisId number = placed_axis(axis);
  if (!placed_)
    throw_error(ErrorCode::bad_input, "cannot return the placement of '", value(id).name,
                "' before phase placed; ask for it there or later");
  if (id >= edits_.first_value && value(id).role == Role::activation)
    throw_error(
        ErrorCode::bad_input, "cannot return the placement of '", value(id).name,
        "': it was added in this phase and is placed when the phase is over; ask for that of its operands");
  const AxisPlacement lies = value(id).on(number);
  return {mesh_.axes()[number].name, lies.kind, lies.dim};
}

}  // namespace prun
