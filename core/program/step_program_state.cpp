// Implements class Program: state that strategies keep, how values lie, and what strategies edit.
#include <algorithm>

#include "base/text.hpp"
#include "program/step_program.hpp"

namespace prun {
namespace {

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
