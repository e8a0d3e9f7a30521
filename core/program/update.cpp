// What follows the gradients: their accumulators cleared and measured, and the optimizer's ops per parameter.
#include "program/passes.hpp"

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

}  // namespace

void add_update(Program& program, OptimizerInterface& optimizer) {
  Array<Text> texts;
  raise(optimizer.states(&texts));
  std::vector<std::string> names;
  for (const Text& text : texts) names.emplace_back(text.view());
  for (Id parameter : program.parameters())
    if (program.value(parameter).gradient != none) add_parameter_update(program, parameter, optimizer, names);
}

}  // namespace prun
