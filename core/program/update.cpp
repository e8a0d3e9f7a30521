// What follows the gradients: their accumulators cleared, measured and looked through, and the optimizer's
// ops per parameter.
#include <algorithm>

#include "program/passes.hpp"
#include "program/update_form.hpp"

namespace prun {
namespace {

Id add_state(Program& program, Id parameter, const std::string& name, DType type) {
  const Value& owner = program.value(parameter);
  Value state;
  state.name = owner.name + "." + name;
  state.role = Role::state;
  state.dtype = type;
  state.dims = owner.dims;
  state.segment = owner.segment;
  return program.add_value(std::move(state));
}

void add_diagnosis(Program& program, Id parameter, Id gradient) {
  const std::vector<TrainedTensor> all = trained_tensors(program);
  const auto place_of = [&](std::int64_t layer) {
    return static_cast<double>(std::find_if(all.begin(), all.end(),
                                            [&](const TrainedTensor& tensor) {
                                              return tensor.parameter == parameter && tensor.layer == layer;
                                            }) -
                               all.begin());
  };
  const Id segment = program.value(parameter).segment;
  const double first = place_of(0), stride = program.segment(segment).repeat > 1 ? place_of(1) - first : 0;
  const AttrValue attrs[] = {{"index", first}, {"stride", stride}};
  program.add_op(segment, FunctionKind::diagnose, Part::input, "count_non_finite",
                 {gradient, program.runtime("keep"), non_finite_counts(program)}, attrs);
}

void add_parameter_update(Program& program, Id parameter, OptimizerInterface& optimizer,
                          const std::vector<std::string>& names) {
  const Id gradient = program.value(parameter).gradient, segment = program.value(parameter).segment;
  program.add_op(segment, FunctionKind::zero, Part::input, "zero", {gradient}, {});
  if (program.value(parameter).copy_of == none) {
    program.add_op(segment, FunctionKind::norm, Part::input, "sum_squares",
                   {gradient, program.runtime("grad_squares")}, {});
    add_diagnosis(program, parameter, gradient);
  }
  const Precision& precision = program.precision();
  if (precision.has_master()) {
    const Id master = add_state(program, parameter, "master", precision.kept_master());
    program.value(parameter).master = master;
  }
  for (const std::string& name : names) {
    const Id state = add_state(program, parameter, name, precision.moments);
    program.value(parameter).states.push_back(state);
  }
  UpdateContext context = update_context(program, parameter);
  const std::vector<Id> states = program.value(parameter).states;
  context.parameter = parameter;
  context.master = program.value(parameter).master;
  context.gradient = gradient;
  context.states = {states.data(), states.size()};
  raise(optimizer.update(&program_api(), &program, segment, context));
}

// They are part of the names of tensors in checkpoints.
void check_state_name(const std::string& name, const std::vector<std::string>& before) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  if (name.empty() || !std::all_of(name.begin(), name.end(), fits))
    throw_error(ErrorCode::bad_input, "the optimizer names a state '", name,
                "'; names are of letters, digits and _");
  if (name == "master" || name == "gradient" || std::find(before.begin(), before.end(), name) != before.end())
    throw_error(ErrorCode::bad_input, "the optimizer names a state '", name,
                "', which each parameter has already; give each a name of its own");
}

std::vector<std::string> state_names(OptimizerInterface& optimizer) {
  Array<Text> texts;
  raise(optimizer.states(&texts));
  std::vector<std::string> names;
  for (const Text& text : texts) {
    std::string name(text.view());
    check_state_name(name, names);
    names.push_back(std::move(name));
  }
  return names;
}

// A value of `segment` that is otherwise as another one.
Id add_copy(Program& program, Id original, Id segment) {
  Value copy = program.value(original);
  copy.name += ".copy";
  copy.segment = segment;
  copy.gradient = copy.master = none;
  copy.states.clear();
  return program.add_value(std::move(copy));
}

void use_instead(Program& program, Id segment, Id old, Id fresh) {
  for (FunctionKind kind : {FunctionKind::forward, FunctionKind::backward, FunctionKind::backward_weight})
    for (Id op : program.segment(segment).ops(kind))
      for (std::size_t i = 0; i < program.op(op).operands.size(); ++i)
        if (program.op(op).operands[i] == old) program.replace_operand(op, i, fresh);
}

}  // namespace

std::vector<TrainedTensor> trained_tensors(const Program& program) {
  std::vector<TrainedTensor> all;
  for (Id segment = program.step_segment() + 1; segment < program.segment_count(); ++segment)
    for (std::int64_t layer = 0; layer < program.segment(segment).repeat; ++layer)
      for (Id id : program.segment(segment).values) {
        const Value& value = program.value(id);
        if (value.role == Role::parameter && value.gradient != none && value.copy_of == none)
          all.push_back({id, layer});
      }
  return all;
}

std::string full_name(const Program& program, Id id, std::int64_t layer) {
  const Id original = program.value(id).copy_of;
  const Value& value = program.value(original == none ? id : original);
  const SegmentData& segment = program.segment(value.segment);
  return segment.name + "." + (segment.repeat > 1 ? std::to_string(layer) + "." : "") + value.name;
}

Id non_finite_counts(Program& program) {
  const char* const name = "non_finite";
  if (const Id known = program.find_runtime(name); known != none) return known;
  Value counts;
  counts.name = name;
  counts.role = Role::runtime;
  counts.dtype = DType::f64;
  const auto tensors = static_cast<std::int64_t>(trained_tensors(program).size());
  counts.dims = {{"tensors", std::max<std::int64_t>(1, tensors)}};
  counts.segment = program.step_segment();
  return program.add_value(std::move(counts));
}

UpdateContext update_context(Program& program, Id parameter) {
  UpdateContext context;
  context.lr = program.runtime("lr");
  context.step = program.runtime("step");
  context.clip = program.runtime("clip");
  context.keep = program.runtime("keep");
  if (program.precision().rounds_by_chance()) context.seed = program.runtime("seed");
  const Value& value = program.value(parameter);
  context.lr_scale = value.lr_scale;
  context.weight_decay = value.weight_decay;
  context.decay = value.decay;
  return context;
}

void untie(Program& program, Id parameter, Id user, AxisId axis, OptimizerInterface& optimizer) {
  const Id copy = add_copy(program, parameter, user);
  program.value(copy).copy_of = parameter;
  use_instead(program, user, parameter, copy);
  const Id gradient = program.value(parameter).gradient;
  if (gradient == none) return;
  const Id other = add_copy(program, gradient, user);
  program.value(copy).gradient = other;
  use_instead(program, user, gradient, other);
  const Update edited = update_of(program, parameter);
  add_parameter_update(program, copy, optimizer, state_names(optimizer));
  carry_edits(program, parameter, edited, update_of(program, copy));
  const AttrValue attr = axis_attr(axis);
  for (Id summand : {gradient, other})
    program.add_op(program.value(summand).segment, FunctionKind::tie, Part::input, "all_reduce_update",
                   {summand}, std::span(&attr, 1));
}

bool is_tied(const Program& program, Id gradient) {
  if (gradient == none) return false;
  const std::vector<Id>& ops = program.segment(program.value(gradient).segment).ops(FunctionKind::tie);
  return std::any_of(ops.begin(), ops.end(),
                     [&](Id op) { return program.op(op).operands.front() == gradient; });
}

void add_update(Program& program, OptimizerInterface& optimizer) {
  const std::vector<std::string> names = state_names(optimizer);
  for (Id parameter : program.parameters())
    if (program.value(parameter).gradient != none) add_parameter_update(program, parameter, optimizer, names);
}

}  // namespace prun
