// Adds what follows the gradients: their accumulators are cleared, measured and searched for non-finite
// elements, and the optimizer's ops are added for each parameter.
#include "program/update.hpp"

#include <algorithm>
#include <cstdio>

#include "ops/base_ops.hpp"
#include "program/passes.hpp"
#include "prun/block_codes.hpp"
#include "prun/eight_bits.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- update form

Id number_in(const std::vector<Id>& own, Id value) {
  const auto found = std::find(own.begin(), own.end(), value);
  return found == own.end() || value == none ? none : static_cast<Id>(found - own.begin());
}

// Returns the op of the segment's `update` that writes a value, or none if it comes from elsewhere.
Id writer_of(const Program& program, Id value) {
  for (Id id : program.segment(program.value(value).segment).ops(FunctionKind::update))
    for (std::size_t i = 0; i < program.op(id).operands.size(); ++i)
      if (program.op(id).operands[i] == value && program.op(id).access(i) == Access::write) return id;
  return none;
}

class UpdateReader {
 public:
  // `members` are what updates of whole tensors have of each parameter of a bucket, beside what it packs.
  UpdateReader(const Program& program, std::vector<Id> own, std::vector<Id> members = {})
      : program_(program), members_(std::move(members)) {
    update_.own = std::move(own);
  }

  Update read(Id segment) {
    for (Id id : program_.segment(segment).ops(FunctionKind::update)) {
      const Op& op = program_.op(id);
      if (!touches_own(op)) continue;
      for (std::size_t i = 0; i < op.operands.size(); ++i)
        if (op.operands[i] != none && op.access(i) == Access::write && !is_own(op.operands[i]))
          update_.own.push_back(op.operands[i]);
      update_.ops.push_back(id);
      update_.form += text(id) + "\n";
    }
    return std::move(update_);
  }

 private:
  bool is_own(Id value) const { return number_in(update_.own, value) != none; }

  bool touches_own(const Op& op) const {
    return std::any_of(op.operands.begin(), op.operands.end(), [&](Id operand) { return is_own(operand); });
  }

  std::string text(Id id) const {
    const Op& op = program_.op(id);
    std::string text(op.kind());
    for (std::size_t i = 0; i < op.attrs.size(); ++i) {
      char number[32];
      std::snprintf(number, sizeof number, " %a", program_.attr(id, op.def->attrs[i].name));
      text += number;
    }
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (op.access(i) != Access::write || is_own(op.operands[i])) text += ", " + origin(op.operands[i]);
    return text;
  }

  // Says what the value is to the update, not which value it is.
  std::string origin(Id value) const {
    if (value == none) return "-";
    if (is_own(value)) return "own " + std::to_string(number_in(update_.own, value));
    if (const Id member = number_in(members_, value); member != none)
      return "member " + std::to_string(member);
    const Id writer = program_.value(value).role == Role::activation ? writer_of(program_, value) : none;
    return writer == none ? "value " + std::to_string(value) : "(" + text(writer) + ")";
  }

  const Program& program_;
  const std::vector<Id> members_;
  Update update_;
};

// Lists values; `whole` are those beside the own parts of a bucket.
std::vector<Id> listed(Id parameter, Id master, Id gradient, const std::vector<Id>& states,
                       const std::vector<Id>& scales, std::pair<Id, Id> whole = {none, none}) {
  std::vector<Id> own = {parameter, master, gradient, whole.first, whole.second};
  own.insert(own.end(), states.begin(), states.end());
  own.insert(own.end(), scales.begin(), scales.end());
  return own;
}

// Carries one parameter's edits to ops of another value.
class Carrier {
 public:
  Carrier(Program& program, Id parameter, const Update& edited, const Update& fresh)
      : program_(program), parameter_(parameter), edited_(edited), fresh_(fresh) {}

  void carry_attributes() {
    std::vector<Id> ops = edited_.ops;
    std::erase_if(ops, [&](Id op) { return program_.op(op).exchange() || program_.op(op).def->converts; });
    for (std::size_t i = 0; i < std::max(ops.size(), fresh_.ops.size()); ++i) {
      if (i >= ops.size()) refuse(fresh_.ops[i], "was taken out of");
      if (i >= fresh_.ops.size() || program_.op(ops[i]).def != program_.op(fresh_.ops[i]).def)
        refuse(ops[i], "was added to");
      const Op source = program_.op(ops[i]);
      for (std::size_t a = 0; a < source.attrs.size(); ++a)
        program_.set_attr(fresh_.ops[i], source.def->attrs[a].name,
                          program_.attr(ops[i], source.def->attrs[a].name));
    }
  }

  void run() {
    for (std::size_t i = 0; i < std::max(edited_.ops.size(), fresh_.ops.size()); ++i) {
      if (i >= fresh_.ops.size()) refuse(edited_.ops[i], "was added to");
      if (i >= edited_.ops.size()) refuse(fresh_.ops[i], "was taken out of");
      if (program_.op(edited_.ops[i]).def != program_.op(fresh_.ops[i]).def)
        refuse(edited_.ops[i], "was put into");
      carry(edited_.ops[i], fresh_.ops[i]);
    }
  }

 private:
  void carry(Id from, Id to) {
    const Op source = program_.op(from);
    for (std::size_t i = 0; i < source.attrs.size(); ++i)
      program_.set_attr(to, source.def->attrs[i].name, program_.attr(from, source.def->attrs[i].name));
    for (std::size_t i = 0; i < source.operands.size(); ++i) {
      const Id value = source.operands[i], there = program_.op(to).operands[i];
      const Id number = number_in(edited_.own, value);
      if (number != number_in(fresh_.own, there))
        refuse(from, detail::concat("has another operand '", source.def->operands[i].name, "' in"));
      if (number == none && value != there) program_.replace_operand(to, i, shared(value, from, i, to));
    }
  }

  // Returns a scalar that the update shares with others, where the op `to` can read it. What is computed in
  // `update` itself is computed again in another segment.
  Id shared(Id value, Id from, std::size_t i, Id to) {
    if (value == none || program_.value(value).role == Role::runtime) return value;
    const Id writer = program_.value(value).dims.empty() ? writer_of(program_, value) : none;
    if (writer == none)
      refuse(from, detail::concat("has another operand '", program_.op(from).def->operands[i].name, "' in"));
    if (program_.value(value).segment == program_.op(to).segment) return value;
    return copied(writer, value, to);
  }

  Id copied(Id writer, Id value, Id to) {
    const Op op = program_.op(writer);
    std::vector<Id> operands, results;
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (op.access(i) == Access::write)
        results.push_back(op.operands[i]);
      else
        operands.push_back(shared(op.operands[i], writer, i, to));
    }
    std::vector<AttrValue> attrs;
    for (std::size_t i = 0; i < op.attrs.size(); ++i)
      attrs.push_back({op.def->attrs[i].name, program_.attr(writer, op.def->attrs[i].name)});
    const std::vector<Id> made = program_.add_op_creating(program_.op(to).segment, FunctionKind::update,
                                                          op.part, op.kind(), operands, attrs, to);
    return made[static_cast<std::size_t>(std::find(results.begin(), results.end(), value) - results.begin())];
  }

  [[noreturn]] void refuse(Id op, const std::string& what) const {
    const Value& parameter = program_.value(parameter_);
    throw_error(ErrorCode::unsupported, "cannot edit the update of parameter '",
                program_.segment(parameter.segment).name, ".", parameter.name, "': op '",
                program_.op(op).kind(), "' ", what,
                " it, and the parameter is sharded or on two stages of a pipeline; change only attributes "
                "and scalar operands of the optimizer's ops");
  }

  Program& program_;
  Id parameter_;
  const Update &edited_, &fresh_;
};

}  // namespace

Update update_of(const Program& program, Id parameter) {
  const Value& value = program.value(parameter);
  return UpdateReader(program, listed(parameter, value.master, value.gradient, value.states, value.scales))
      .read(value.segment);
}

Update update_of(const Program& program, const Bucket& bucket) {
  std::vector<Id> members = bucket.parameters;
  for (const Id parameter : bucket.parameters) {
    const std::vector<Id>& states = program.value(parameter).states;
    members.insert(members.end(), states.begin(), states.end());
  }
  return UpdateReader(program,
                      listed(bucket.own_parameters, bucket.master, bucket.own_gradients, bucket.states,
                             bucket.scales, {bucket.all_parameters, bucket.all_gradients}),
                      std::move(members))
      .read(bucket.segment);
}

void check_scaled_updates(const Program& program) {
  if (program.find_runtime("loss_scale") == none) return;
  const Id clip = program.find_runtime("clip");
  const auto reads_clip = [&](Id id) {
    const std::vector<Id>& operands = program.op(id).operands;
    return std::find(operands.begin(), operands.end(), clip) != operands.end();
  };
  for (const Id id : program.parameters()) {
    const Value& value = program.value(id);
    if (value.gradient == none) continue;
    const Update update = update_of(program, id);
    if (std::none_of(update.ops.begin(), update.ops.end(), reads_clip))
      throw_error(ErrorCode::unsupported, "cannot scale the loss: no op that updates '",
                  program.segment(value.segment).name, ".", value.name,
                  "' reads the factor that unscales its gradient (UpdateContext::clip); take another "
                  "optimizer plugin, or precision.compute = \"bf16\"");
  }
}

void check_updates(const Program& program) {
  for (const Id id : program.parameters()) {
    const Value& value = program.value(id);
    if (value.gradient == none) continue;
    std::vector<Id> stands_for_it = {id};
    Update update;
    if (value.bucket < 0) {
      update = update_of(program, id);
    } else {
      const Bucket& bucket = program.buckets()[value.bucket];
      stands_for_it = {id, bucket.own_parameters, bucket.all_parameters};
      update = update_of(program, bucket);
    }
    const auto changes = [&](Id number) {
      const Op& op = program.op(number);
      for (std::size_t i = 0; i < op.operands.size(); ++i)
        if (op.access(i) != Access::read && number_in(stands_for_it, op.operands[i]) != none) return true;
      return false;
    };
    if (std::none_of(update.ops.begin(), update.ops.end(), changes))
      throw_error(ErrorCode::bad_input, "cannot train parameter '", program.segment(value.segment).name, ".",
                  value.name,
                  "': no op of its update changes it; freeze it in phase 'model' (set_parameter), or let the "
                  "optimizer append an op");
  }
}

void carry_edits(Program& program, Id parameter, const Update& edited, const Update& fresh) {
  Carrier(program, parameter, edited, fresh).run();
}

void carry_attributes(Program& program, Id parameter, const Update& edited, const Update& fresh) {
  Carrier(program, parameter, edited, fresh).carry_attributes();
}

namespace {

// ------------------------------------------------------------------- update

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
  // It has the precision of sums, whatever type moments have: a bf16 would not move by a thousandth of the
  // way.
  if (const std::optional<StateRequest>& asked = program.requests().optimizer_state) {
    check_state_name(asked->name, names);
    wanted.push_back({asked->name, shape.sums, {}, 1, false});
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
  write_update(program, segment, optimizer, context);
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

namespace {

// Appends the op that changes the state which a strategy has asked for.
void update_state(Program& program, Id segment, const StateRequest& asked, Id state,
                  const UpdateContext& context) {
  std::vector<AttrValue> attrs;
  for (const auto& [name, value] : asked.attrs) attrs.push_back({name.c_str(), value});
  const Id id = program.add_op(segment, FunctionKind::update, Part::input, asked.op,
                               {context.parameter, context.master, state, context.step, context.keep}, attrs);
  OpShape shape = program.shape(program.op(id));
  raise(program.op(id).def->rule(&shape));
  if (!shape.wholes[0].empty() || !shape.sums[0].empty() || !shape.maxes[0].empty())
    throw_error(ErrorCode::bad_input, "cannot change state '", asked.name, "' of [", asked.asked_by,
                "] by op '", asked.op, "': it does not treat all elements alike");
}

}  // namespace

void write_update(Program& program, Id segment, const NamedOptimizer& optimizer, UpdateContext context) {
  const std::optional<StateRequest>& asked = program.requests().optimizer_state;
  const Array<Id> all = context.states;
  if (asked) {
    PRUN_CHECK(all.size > 0, "a state that no parameter has");
    context.states.size = all.size - 1;
    context.scales.size = std::min(context.scales.size, context.states.size);
  }
  raise(optimizer.plugin->update(&program_api(), &program, segment, context));
  if (asked) update_state(program, segment, *asked, all[all.size - 1], context);
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
