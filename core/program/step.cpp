// What frames a step. Everything that changes from step to step enters and leaves through staging buffers in
// host memory, so that nobody writes into live memory: `load` copies a microbatch in, `begin` the scalars and
// clears the sums, `report` copies the results out.
#include "program/passes.hpp"

namespace prun {
namespace {

// `counted` (targets that count) and `stop` are a rank's own; the others every rank knows.
constexpr const char* scalars_in[] = {"lr", "step", "seed", "counted", "stop"};
constexpr const char* scalars_out[] = {"loss_sum", "grad_norm", "clip", "keep", "counted", "stop"};

std::vector<Name> counted_over(std::string_view scalar) {
  if (scalar == "counted") return {"batch", "seq"};
  if (scalar == "stop") return {"*"};
  return {};
}

Id add_staging(Program& program, Id device_value, const char* suffix) {
  Value staged = program.value(device_value);
  staged.name += suffix;
  staged.role = Role::staging;
  staged.segment = program.step_segment();
  return program.add_value(std::move(staged));
}

void add_copy(Program& program, FunctionKind function, Id from, Id to) {
  program.add_op(program.step_segment(), function, Part::input, "copy", {from, to}, {});
}

}  // namespace

Id add_staged_scalar(Program& program, const char* name, std::vector<Name> counted) {
  const Id scalar = program.runtime(name);
  const Id staged = add_staging(program, scalar, ".staged");
  program.value(staged).counted = std::move(counted);
  add_copy(program, FunctionKind::begin, staged, scalar);
  return scalar;
}

void add_step(Program& program, const StepOptions& options) {
  const Id step = program.step_segment();
  for (Id input : program.inputs())
    add_copy(program, FunctionKind::load, add_staging(program, input, ".staged"), input);
  for (const char* name : scalars_in) add_staged_scalar(program, name, counted_over(name));
  program.add_op(step, FunctionKind::begin, Part::input, "reciprocal",
                 {program.runtime("counted"), program.runtime("inv_targets")}, {});
  for (const char* name : {"loss_sum", "grad_squares"})
    program.add_op(step, FunctionKind::begin, Part::input, "zero", {program.runtime(name)}, {});
  const AttrValue limit{"limit", options.clip};
  program.add_op(step, FunctionKind::finish, Part::input, "clip_factor",
                 {program.runtime("grad_squares"), program.runtime("loss_sum"), program.runtime("grad_norm"),
                  program.runtime("clip"), program.runtime("keep")},
                 std::span(&limit, 1));
  for (const char* name : scalars_out) {
    const Id scalar = program.runtime(name);
    add_copy(program, FunctionKind::report, scalar, add_staging(program, scalar, ".reported"));
  }
}

}  // namespace prun
