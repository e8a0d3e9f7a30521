// What follows the gradients: their accumulators cleared and measured, and the optimizer's ops per parameter.
#include "program/passes.hpp"
#include "program/update_form.hpp"

namespace prun {
namespace {

Id add_state(Program& program, Id parameter, const std::string& name) {
  const Value& owner = program.value(parameter);
  Value state;
  state.name = owner.name + "." + name;
  state.role = Role::state;
  state.dtype = program.precision().state;
  state.dims = owner.dims;
  state.segment = owner.segment;
  return program.add_value(std::move(state));
}

void add_parameter_update(Program& program, Id parameter, OptimizerInterface& optimizer,
                          const std::vector<std::string>& names) {
  const Id gradient = program.value(parameter).gradient, segment = program.value(parameter).segment;
  program.add_op(segment, FunctionKind::zero, Part::input, "zero", {gradient}, {});
  if (program.value(parameter).copy_of == none)
    program.add_op(segment, FunctionKind::norm, Part::input, "sum_squares",
                   {gradient, program.runtime("grad_squares")}, {});
  if (program.precision().compute != program.precision().state) {
    const Id master = add_state(program, parameter, "master");
    program.value(parameter).master = master;
  }
  for (const std::string& name : names) {
    const Id state = add_state(program, parameter, name);
    program.value(parameter).states.push_back(state);
  }
  const Value& value = program.value(parameter);
  const std::vector<Id> states = value.states;
  const UpdateContext context{parameter,
                              value.master,
                              gradient,
                              {states.data(), states.size()},
                              program.runtime("lr"),
                              program.runtime("step"),
                              program.runtime("clip"),
                              program.runtime("keep"),
                              program.value(parameter).lr_scale,
                              program.value(parameter).weight_decay,
                              program.value(parameter).decay};
  raise(optimizer.update(&program_api(), &program, segment, context));
}

std::vector<std::string> state_names(OptimizerInterface& optimizer) {
  Array<Text> texts;
  raise(optimizer.states(&texts));
  std::vector<std::string> names;
  for (const Text& text : texts) names.emplace_back(text.view());
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

void add_update(Program& program, OptimizerInterface& optimizer) {
  const std::vector<std::string> names = state_names(optimizer);
  for (Id parameter : program.parameters())
    if (program.value(parameter).gradient != none) add_parameter_update(program, parameter, optimizer, names);
}

}  // namespace prun
