// Adds what follows the gradients: their accumulators are cleared, measured and searched for non-finite
// elements, and the optimizer's ops are added for each parameter.
#include <algorithm>

#include "ops/base_ops.hpp"
#include "program/passes.hpp"
#include "program/update_form.hpp"
#include "prun/block_codes.hpp"
#include "prun/eight_bits.hpp"

namespace prun {
namespace {

struct WantedState {
  std::string name;
  DType type = DType::f32;
  std::optional<std::vector<Dim>> dims;  // without dimensions: the parameter's
  std::int64_t block = 1;
  bool moment = false;  // whether it has the type of precision.moments: 8 bits, if that says so
};

Id add_state(Program& program, Id parameter, const WantedState& wanted) {
  const Value& owner = program.value(parameter);
  if (owner.part && wanted.dims)
    throw_error(ErrorCode::unsupported, "cannot split parameter '", owner.part->tensor,
                "' for ranks that share the queries of a group of heads: its optimizer has state '",
                wanted.name, "' of the unsplit parameter; take another optimizer, or fewer ranks there");
  Value state;
  state.name = owner.name + "." + wanted.name;
  state.role = Role::state;
  state.dtype = wanted.type;
  state.dims = wanted.dims.value_or(owner.dims);
  state.own_shape = wanted.dims.has_value() && wanted.block == 1;
  state.block = wanted.block;
  state.part = owner.part;
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
  program.add_op(segment, FunctionKind::diagnose, Part::input, base_ops::count_non_finite,
                 {gradient, program.runtime("keep"), non_finite_counts(program)}, attrs);
}

// Checks a state's name, which is part of the names of tensors in checkpoints.
void check_state_name(const std::string& name, const std::vector<std::string>& before) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  if (name.empty() || !std::all_of(name.begin(), name.end(), fits))
    throw_error(ErrorCode::bad_input, "the optimizer names a state '", name,
                "'; names are of letters, digits and _");
  if (name == "master" || name == "gradient" || name.starts_with("before") ||
      std::find(before.begin(), before.end(), name) != before.end())
    throw_error(ErrorCode::bad_input, "cannot add optimizer state '", name,
                "': each parameter has one already; take another name");
}

std::vector<WantedState> states_of(Program& program, Id parameter, const NamedOptimizer& optimizer) {
  const Value& value = program.value(parameter);
  const ParameterShape shape{{value.dims.data(), value.dims.size()},
                             value.matrices,
                             OpShape::statistics(program.precision().gradient)};
  Array<StateSpec> specs;
  raise(optimizer.plugin->states_of(shape, &specs));
  std::vector<WantedState> wanted;
  std::vector<std::string> names;
  for (const StateSpec& spec : specs) {
    check_state_name(std::string(spec.name.view()), names);
    names.emplace_back(spec.name.view());
    WantedState state{names.back(),
                      spec.typed ? spec.dtype : program.precision().moments,
                      {},
                      1,
                      !spec.typed && !spec.shaped};
    if (spec.shaped) state.dims = std::vector<Dim>(spec.dims.begin(), spec.dims.end());
    if (state.dims && !optimizer.updates_whole())
      throw_error(ErrorCode::bad_input, "cannot shape state '", state.name, "' of optimizer plugin '",
                  optimizer.name,
                  "': only one that updates whole tensors may; give it the trait whole=tensors");
    wanted.push_back(std::move(state));
  }
  return wanted;
}

// Returns the shape of the scales of a tensor of that shape: its dimensions but for the last ones, whose
// elements make up whole blocks. Returns nothing if it does not come in blocks.
std::optional<std::vector<Dim>> dims_of_scales(const std::vector<Dim>& dims) {
  std::int64_t inner = 1, all = 1;
  for (const Dim& dim : dims) all *= dim.extent;
  if (all < eight_bit_least) return {};
  for (std::size_t d = dims.size(); d-- > 0;) {
    inner *= dims[d].extent;
    if (inner % eight_bit_block != 0) continue;
    std::vector<Dim> scales(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(d));
    scales.push_back({dims[d].name, inner / eight_bit_block});
    return scales;
  }
  return {};
}

// Adds a state, with scales if it is a moment that is kept in 8 bits.
void add_optimizer_state(Program& program, Id parameter, WantedState wanted) {
  const auto scales = wanted.moment && program.precision().eight_bits
                          ? dims_of_scales(program.value(parameter).dims)
                          : std::nullopt;
  if (scales) wanted.type = DType::u8;
  const Id state = add_state(program, parameter, wanted);
  const Id scale =
      scales ? add_state(program, parameter, {wanted.name + "_scale", DType::f32, scales, eight_bit_block})
             : none;
  program.value(parameter).states.push_back(state);
  program.value(parameter).scales.push_back(scale);
}

void check_is_matrix(const Program& program, Id parameter, const NamedOptimizer& optimizer) {
  const Value& value = program.value(parameter);
  if (optimizer.unit != UpdateUnit::matrix || value.matrices.columns > 0) return;
  throw_error(ErrorCode::bad_input, "cannot update '", program.segment(value.segment).name, ".", value.name,
              "' with optimizer plugin '", optimizer.name,
              "', which updates matrices: its model does not declare it as one; use another optimizer for "
              "such parameters: "
              "[[optimizer.group]] match = \"*\", of = \"others\", and a plugin that treats elements alike");
}

}  // namespace

bool sums_in_update(const Program& program, Id parameter, const NamedOptimizer& optimizer) {
  const std::int64_t elements = program.value(parameter).elements();
  return optimizer.sums_in_update && program.precision().reduce_bits == 1 && elements >= code_least &&
         elements % code_block == 0;
}

namespace {

// Refuses an optimizer that does nothing with scales: it would take codes for numbers.
void check_reads_scales(const Program& program, Id parameter, const NamedOptimizer& optimizer) {
  const Value& value = program.value(parameter);
  const auto reads = [&](Id scale) {
    const auto ops = program.segment(value.segment).ops(FunctionKind::update);
    return std::any_of(ops.begin(), ops.end(), [&](Id op) {
      const std::vector<Id>& operands = program.op(op).operands;
      return std::find(operands.begin(), operands.end(), scale) != operands.end();
    });
  };
  for (const Id scale : value.scales)
    if (scale != none && !reads(scale))
      throw_error(ErrorCode::unsupported, "cannot keep moments in 8 bits with optimizer plugin '",
                  optimizer.name, "': none of its ops reads '", program.value(scale).name,
                  "'; take another type, such as precision.moments = \"bf16\", or another optimizer");
}

void add_parameter_update(Program& program, Id parameter, const Optimizers& optimizers) {
  const NamedOptimizer& optimizer =
      optimizers.at(static_cast<std::size_t>(program.value(parameter).optimizer));
  check_is_matrix(program, parameter, optimizer);
  const Id gradient = program.value(parameter).gradient, segment = program.value(parameter).segment;
  program.add_op(segment, FunctionKind::zero, Part::input, base_ops::zero, {gradient}, {});
  if (program.value(parameter).copy_of == none) {
    program.add_op(
        segment, FunctionKind::norm, Part::input,
        sums_in_update(program, parameter, optimizer) ? base_ops::summand_squares : base_ops::sum_squares,
        {gradient, program.runtime("grad_squares")}, {});
    add_diagnosis(program, parameter, gradient);
  }
  const Precision& precision = program.precision();
  if (precision.has_master()) {
    const Id master = add_state(program, parameter, {"master", precision.kept_master(), {}, 1});
    program.value(parameter).master = master;
  }
  for (const WantedState& wanted : states_of(program, parameter, optimizer))
    add_optimizer_state(program, parameter, wanted);
  UpdateContext context = update_context(program, parameter);
  const std::vector<Id> states = program.value(parameter).states, scales = program.value(parameter).scales;
  context.parameter = parameter;
  context.master = program.value(parameter).master;
  context.gradient = gradient;
  context.states = {states.data(), states.size()};
  context.scales = {scales.data(), scales.size()};
  raise(optimizer.plugin->update(&program_api(), &program, segment, context));
  check_reads_scales(program, parameter, optimizer);
}

// Adds a value of `segment` that is otherwise the same as another one.
Id add_copy(Program& program, Id original, Id segment) {
  Value copy = program.value(original);
  copy.name += ".copy";
  copy.segment = segment;
  copy.gradient = copy.master = none;
  copy.states.clear();
  copy.scales.clear();
  return program.add_value(std::move(copy));
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
  const bool part = value.part && value.role == Role::parameter;
  return segment.name + "." + (segment.repeat > 1 ? std::to_string(layer) + "." : "") +
         (part ? value.part->tensor : value.name);
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

void untie(Program& program, Id parameter, Id user, AxisId axis, const Optimizers& optimizers) {
  const Id copy = add_copy(program, parameter, user);
  program.value(copy).copy_of = parameter;
  program.replace_in(user, microbatch_functions, parameter, copy);
  const Id gradient = program.value(parameter).gradient;
  if (gradient == none) return;
  const Id other = add_copy(program, gradient, user);
  program.value(copy).gradient = other;
  program.replace_in(user, microbatch_functions, gradient, other);
  const Update edited = update_of(program, parameter);
  add_parameter_update(program, copy, optimizers);
  carry_edits(program, parameter, edited, update_of(program, copy));
  const AttrValue attr = axis_attr(axis);
  for (Id summand : {gradient, other})
    program.add_op(program.value(summand).segment, FunctionKind::tie, Part::input,
                   base_ops::all_reduce_update, {summand}, std::span(&attr, 1));
}

bool is_tied(const Program& program, Id gradient) {
  if (gradient == none) return false;
  const std::vector<Id>& ops = program.segment(program.value(gradient).segment).ops(FunctionKind::tie);
  return std::any_of(ops.begin(), ops.end(),
                     [&](Id op) { return program.op(op).operands.front() == gradient; });
}

void add_update(Program& program, const Optimizers& optimizers) {
  for (Id parameter : program.parameters())
    if (program.value(parameter).gradient != none) add_parameter_update(program, parameter, optimizers);
}

}  // namespace prun
