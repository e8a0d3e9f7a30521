// This is the plugin's side of Program: every call is guarded, and nothing is thrown across the ABI.
#include <algorithm>

#include "program/flops.hpp"
#include "program/passes.hpp"
#include "program/recompute.hpp"
#include "program/step.hpp"
#include "program/step_program.hpp"

namespace prun {
namespace {

Program& of(void* handle) { return *static_cast<Program*>(handle); }

template <class T>
std::span<const T> span(Array<T> array) {
  return {array.data, array.size};
}

Status add_segment(void* p, Text name, std::int64_t repeat, Id* result) {
  return guard([&] { *result = of(p).add_segment(name.view(), repeat); });
}
Status add_parameter(void* p, Id segment, const ParameterSpec* spec, Id* result) {
  return guard([&] { *result = of(p).add_parameter(segment, *spec); });
}
Status add_state(void* p, Id segment, const KeptState* state, Id* result) {
  return guard([&] { *result = of(p).add_state(segment, *state); });
}
Status add_tally(void* p, Id segment, Text name, Array<Dim> dims, Id* result) {
  return guard([&] {
    *result = of(p).add_tally(segment, name.view(), span(dims));
    frame_late_tally(of(p), *result);
  });
}
Status tie(void* p, Id segment, Id parameter, Id* result) {
  return guard([&] { *result = of(p).use_parameter(segment, parameter); });
}
Status input(void* p, Id segment, Text name, Id* result) {
  return guard([&] { *result = of(p).input(segment, name.view()); });
}
Status runtime(void* p, Text name, Id* result) {
  return guard([&] { *result = of(p).runtime(name.view()); });
}
Status incoming(void* p, Id segment, Id* result) {
  return guard([&] { *result = of(p).incoming(segment); });
}
Status outgoing(void* p, Id segment, Id value) {
  return guard([&] { of(p).set_outgoing(segment, value); });
}

// Says whether the operands are all of the op's, those that it writes too.
bool writes_existing(const Program& program, std::string_view kind, Array<Id> operands) {
  if (!program.registry().contains(kind)) return false;
  const OpDef& def = program.registry().find(kind);
  std::uint64_t writes = 0;
  for (std::uint64_t i = 0; i < def.operand_count; ++i) writes += def.operands[i].access == Access::write;
  return writes > 0 && operands.size == def.operand_count;
}
std::vector<Id> add_whole_op(Program& program, Id segment, FunctionKind function, Id before, Text kind,
                             Array<Id> operands, Array<AttrValue> attrs) {
  program.add_op(segment, function, Part::input, kind.view(), {operands.begin(), operands.end()}, span(attrs),
                 before);
  return {};
}

Status add_op(void* p, Id segment, FunctionKind function, Id before, Text kind, Array<Id> inputs,
              Array<AttrValue> attrs, Id* outputs, std::uint64_t output_count) {
  return guard([&] {
    if (!of(p).is_shown(segment, function))
      throw_error(ErrorCode::bad_input, "cannot add op '", kind.view(), "' to function '", name_of(function),
                  "' of segment '", of(p).segment(segment).name, "': another device runs and lowers it");
    const Id op = of(p).op_count();
    const std::vector<Id> created = writes_existing(of(p), kind.view(), inputs)
                                        ? add_whole_op(of(p), segment, function, before, kind, inputs, attrs)
                                        : of(p).add_op_creating(segment, function, Part::input, kind.view(),
                                                                span(inputs), span(attrs), before);
    if (created.size() < output_count)
      throw_error(ErrorCode::bad_input, "op '", kind.view(), "' writes ", created.size(), " values, not ",
                  output_count);
    for (std::uint64_t i = 0; i < output_count; ++i) outputs[i] = created[i];
    of(p).note_edit(op);
  });
}

template <class Edit>
Status edit(void* p, Id op, Edit&& edit) {
  return guard([&] {
    of(p).note_edit(op);  // what it wrote before
    edit(of(p));
    of(p).note_edit(op);
  });
}
Status replace_operand(void* p, Id op, std::int32_t index, Id value) {
  return edit(p, op, [&](Program& to) { to.replace_operand(op, static_cast<std::size_t>(index), value); });
}

OpShape marks_of(const Program& program, const Op& op) {
  OpShape shape = program.shape(op);
  raise(op.def->rule(&shape));
  return shape;
}

// Says whether an op is the same as before, on values that are placed as those before: what is placed right
// stays so, even a collective of the core's.
bool is_placed_as(const Program& program, const Op& op, const Op& before) {
  if (!program.is_placed() || op.def != before.def || op.operands.size() != before.operands.size())
    return false;
  for (std::size_t i = 0; i < op.attrs.size(); ++i)
    if (op.attrs[i].i != before.attrs[i].i) return false;
  for (std::size_t i = 0; i < op.operands.size(); ++i)
    if ((op.operands[i] == none) != (before.operands[i] == none) ||
        (op.operands[i] != none &&
         program.value(op.operands[i]).placement != program.value(before.operands[i]).placement))
      return false;
  const OpShape now = marks_of(program, op), then = marks_of(program, before);
  const auto same = [](const auto& a, const auto& b) {
    return std::equal(std::begin(a), std::end(a), std::begin(b));
  };
  return same(now.sums, then.sums) && same(now.wholes, then.wholes) && same(now.maxes, then.maxes) &&
         now.linear == then.linear && now.monotone == then.monotone && now.own == then.own;
}

Status replace_op(void* p, Id op, Text kind, Array<Id> operands, Array<AttrValue> attrs) {
  return guard([&] {
    const Op before = of(p).op(op);
    of(p).replace_op(op, kind.view(), {operands.begin(), operands.end()}, span(attrs));
    if (is_placed_as(of(p), of(p).op(op), before)) return;
    for (std::size_t i = 0; i < before.operands.size(); ++i)
      if (before.operands[i] != none && before.access(i) != Access::read)
        of(p).note_touched(before.operands[i]);
    of(p).note_edit(op);
  });
}
Status erase(void* p, Id op) {
  return guard([&] {
    of(p).note_edit(op);
    of(p).erase_op(op);
  });
}
Status set_attr(void* p, Id op, Text name, double value) {
  return edit(p, op, [&](Program& to) { to.set_attr(op, name.view(), value); });
}
Status get_attr(void* p, Id op, Text name, double* value) {
  return guard([&] { *value = of(p).attr(op, name.view()); });
}

// Refuses a change after backward is written: the ops that depend on it exist by then.
void check_not_differentiated(const Program& program, const Value& parameter) {
  const std::vector<Id> all = program.parameters();
  if (std::any_of(all.begin(), all.end(), [&](Id id) { return program.value(id).gradient != none; }))
    throw_error(ErrorCode::bad_input, "parameter '", parameter.name,
                "': how it is trained can be set in phase 'model' only; later, edit the ops that update it");
}

Status set_parameter(void* p, Id id, bool frozen, bool decay, double lr_scale) {
  return guard([&] {
    Value& value = of(p).value(id);
    if (value.role != Role::parameter)
      throw_error(ErrorCode::bad_input, "'", value.name, "' is no parameter");
    check_not_differentiated(of(p), value);
    if (value.untrained && !frozen)
      throw_error(ErrorCode::bad_input, "parameter '", value.name, "' is one that no gradient trains");
    value.frozen = frozen;
    value.decay = decay;
    value.lr_scale = lr_scale;
  });
}

ValueInfo info_of(const Program& program, const Value& value) {
  const bool gathered = value.role == Role::parameter && value.bucket >= 0 &&
                        gathers_parameters(program, program.bucket_of(value));
  ValueInfo info{value.role,
                 value.dtype,
                 value.segment,
                 static_cast<std::int32_t>(value.dims.size()),
                 {},
                 value.frozen,
                 value.decay,
                 value.lr_scale,
                 value.name,
                 value.gradient,
                 value.part.has_value(),
                 gathered};
  std::copy(value.dims.begin(), value.dims.end(), info.dims);
  return info;
}

OpInfo info_of(const Op& op) {
  return {op.kind(), op.segment, op.function, op.part, {op.operands.data(), op.operands.size()}, op.def};
}

Status value_info(void* p, Id id, ValueInfo* info) {
  return guard([&] { *info = info_of(of(p), of(p).value(id)); });
}

Status op_info(void* p, Id id, OpInfo* info) {
  return guard([&] { *info = info_of(of(p).op(id)); });
}

std::vector<Lies> lies_of(const Program& program, const Value& value) {
  std::vector<Lies> list;
  for (AxisId axis = 0; program.is_placed() && axis < program.mesh().size(); ++axis)
    if (program.mesh().extent(axis) > 1)
      list.push_back({program.mesh().axes()[axis].name, value.on(axis).kind, value.on(axis).dim});
  return list;
}

void show_values(Program& program, ShownProgram& shown) {
  for (Id id = 0; id < program.value_count(); ++id) {
    const std::vector<Lies> lies = lies_of(program, program.value(id));
    shown.lies.insert(shown.lies.end(), lies.begin(), lies.end());
    shown.values.push_back({id, info_of(program, program.value(id)), {nullptr, lies.size()}});
  }
  const Lies* next = shown.lies.data();
  for (ProgramView::Value& value : shown.values) {
    value.lies.data = next;
    next += value.lies.size;
  }
}

Status view(void* p, ProgramView* view) {
  return guard([&] {
    Program& program = of(p);
    ShownProgram& shown = program.shown_program();
    shown = {};
    show_values(program, shown);
    for (Id segment = 0; segment < program.segment_count(); ++segment)
      for (int kind = 0; kind < function_kinds; ++kind)
        if (const auto function = static_cast<FunctionKind>(kind); program.is_shown(segment, function))
          for (const Id op : program.segment(segment).ops(function))
            shown.ops.push_back({op, info_of(program.op(op))});
    *view = {{shown.values.data(), shown.values.size()}, {shown.ops.data(), shown.ops.size()}};
  });
}

Status segment_info(void* p, Id id, SegmentInfo* info) {
  return guard([&] {
    const SegmentData& segment = of(p).segment(id);
    *info = {segment.name,
             segment.repeat,
             segment.incoming,
             segment.outgoing,
             segment.incoming_gradient,
             segment.outgoing_gradient};
  });
}

std::uint64_t segment_count(void* p) { return of(p).segment_count(); }

Status ops(void* p, Id segment, FunctionKind function, Array<Id>* result) {
  return guard([&] {
    *result = {};
    if (!of(p).is_shown(segment, function)) return;
    const std::vector<Id>& list = of(p).segment(segment).ops(function);
    *result = {list.data(), list.size()};
  });
}

Status values(void* p, Id segment, Array<Id>* result) {
  return guard([&] {
    const std::vector<Id>& list = of(p).segment(segment).values;
    *result = {list.data(), list.size()};
  });
}

Status split(void* p, Text dim, Text axis, SplitScope scope) {
  return guard([&] { of(p).split(dim.view(), axis.view(), scope); });
}

Status axis_info(void* p, Text name, AxisInfo* axis) {
  return guard([&] {
    std::vector<AxisId> found = of(p).mesh().all_of(name.view());
    if (const AxisId part = of(p).mesh().find(name.view()); found.empty() && part != no_axis) found = {part};
    if (found.empty()) throw_error(ErrorCode::bad_input, "the mesh has no axis '", name.view(), "'");
    axis->number = found.size() == 1 ? static_cast<std::int64_t>(found.front()) : -1;
    axis->extent = 1;
    for (const AxisId one : found) axis->extent *= of(p).mesh().extent(one);
  });
}

Status placement(void* p, Id value, Text axis, Lies* lies) {
  return guard([&] { *lies = of(p).placement(value, axis.view()); });
}
Status place_over(void* p, Id value, const Lies* lies) {
  return guard([&] { of(p).place_over(value, *lies); });
}
Status vary(void* p, Text axis) {
  return guard([&] { of(p).vary(axis.view()); });
}
Status periodic(void* p, std::int64_t every) {
  return guard([&] { of(p).run_periodically(every); });
}
Status evaluate_with(void* p, Id parameter, Id state) {
  return guard([&] { of(p).evaluate_with(parameter, state); });
}
Status replace_value(void* p, Id value, Id by) {
  return guard([&] { of(p).replace_value(value, by); });
}
// Refuses an op with other operands: those that write_update() gives it.
void check_updates_state(const OpDef& def) {
  constexpr bool changed[] = {false, false, true, false, false};
  bool fits = def.operand_count == std::size(changed) && def.operands[1].optional;
  for (std::size_t i = 0; fits && i < std::size(changed); ++i)
    fits = def.operands[i].access == (changed[i] ? Access::update : Access::read);
  if (!fits)
    throw_error(ErrorCode::bad_input, "cannot change a state by op '", def.kind,
                "': its operands must be a parameter, optional master weights, the state, which it updates, "
                "the number of the update, and 0 if that must be skipped");
}

Status optimizer_state(void* p, const UpdatedState* state) {
  return guard([&] {
    const std::vector<Id> all = of(p).parameters();
    if (std::any_of(all.begin(), all.end(), [&](Id id) { return of(p).value(id).gradient != none; }))
      throw_error(ErrorCode::bad_input, "cannot add optimizer state '", state->name.view(),
                  "': updates are written by now; ask for it in phase model");
    check_updates_state(of(p).registry().find(state->op.view()));
    of(p).requests().keep_state(*state, of(p).writer());
  });
}
Status layer_flops(void* p, Array<double>* flops) {
  return guard([&] {
    std::vector<double>& shown = of(p).shown_program().layer_flops;
    shown = chain_flops(of(p));
    *flops = {shown.data(), shown.size()};
  });
}
Status step_context(void* p, StepContext* context) {
  return guard([&] {
    *context = of(p).step_context();
    context->sequence_chunk = of(p).requests().sequence_order.chunk;
  });
}

Status shape(void* p, Id op, bool local, OpShape* shape) {
  return guard([&] { *shape = local ? of(p).local_shape(of(p).op(op)) : of(p).shape(of(p).op(op)); });
}
Status add_value(void* p, const AddedValue* described, Id* value) {
  return guard([&] { *value = of(p).add_beside(*described); });
}
Status gather_as(void* p, Id parameter, const AddedValue* codes) {
  return guard([&] { of(p).gather_as(parameter, *codes); });
}
Status count_quantized(void* p, QuantizationCounts* counts) {
  return guard([&] { add_quantization_counts(of(p), *counts); });
}

Status shard_state(void* p, Array<Text> axes, Sharded what) {
  return guard([&] { of(p).requests().shard_state(of(p).mesh(), axes, what, of(p).writer()); });
}
Status flat_parameters(void* p, Array<FlatParameter>* list) {
  return guard([&] { *list = of(p).shown_flat_parameters(); });
}
Status flat_buffer(void* p, const FlatBuffer* described, Id* value) {
  return guard([&] { *value = of(p).add_flat_buffer(*described); });
}
Status lie_within(void* p, Id shard, Id whole, AxisInfo ranks) {
  return guard([&] { of(p).lie_within(shard, whole, ranks); });
}

Status recompute_segment(void* p, Id segment, RecomputeMode mode, Array<Text> kinds) {
  return guard([&] {
    using Kind = RecomputeChoice::Kind;
    if (mode == RecomputeMode::budget) {
      of(p).segment(segment).recompute_to_fit = true;
      recompute(of(p), segment, of(p).requests().planned_recompute);
      return;
    }
    RecomputeChoice choice{mode == RecomputeMode::full  ? Kind::full
                           : mode == RecomputeMode::ops ? Kind::ops
                                                        : Kind::nothing,
                           {}};
    for (const Text& kind : kinds) choice.op_kinds.emplace_back(kind.view());
    recompute(of(p), segment, choice);
  });
}

Status pipeline(void* p, Text axis, Text schedule, std::int32_t chunks, Array<std::int64_t> layers) {
  return guard([&] {
    of(p).requests().lay_pipeline(of(p).mesh(), axis.view(), schedule.view(), chunks,
                                  {layers.begin(), layers.end()});
  });
}

Status device(void* p, Text plugin, std::int32_t* number) {
  return guard([&] { *number = of(p).requests().add_device(plugin.view()); });
}
Status place(void* p, Id value, MemoryPlace place) {
  return guard([&] { of(p).set_place(value, place); });
}
Status run_on(void* p, Id segment, FunctionKind function, std::int32_t device) {
  return guard([&] { of(p).run_on(segment, function, device); });
}
Status share_saved(void* p, Id segment, Array<SavedShare> shares) {
  return guard([&] { of(p).share_saved(segment, {shares.begin(), shares.end()}); });
}
Status choose_to_fit(void* p, Array<Text> ways, std::uint64_t* chosen) {
  return guard([&] {
    std::vector<std::string> texts;
    for (const Text& way : ways) texts.emplace_back(way.view());
    *chosen = of(p).requests().choose_to_fit(texts);
  });
}
Status tier(void* p, Text plugin, std::int32_t* number) {
  return guard([&] { *number = of(p).requests().add_tier(plugin.view()); });
}
Status tiers(void* p, Array<Text>* plugins) {
  return guard([&] { *plugins = of(p).requests().tiers_of_recipe(); });
}
Status set_matrices(void* p, Id parameter, const Matrices* matrices) {
  return guard([&] { of(p).set_matrices(parameter, *matrices); });
}
Status matrices(void* p, Id parameter, Matrices* matrices) {
  return guard([&] { *matrices = of(p).value(parameter).matrices; });
}
Status share_sequence(void* p, Text axis, SequenceShares shares) {
  return guard([&] { share_out_sequence(of(p), axis.view(), shares); });
}
Status split_beyond(void* p, Text dim, Text within, Text axis, SplitScope scope) {
  return guard([&] { of(p).split_beyond(dim.view(), within.view(), axis.view(), scope); });
}
Status used_elsewhere(void* p, Id value, bool* used) {
  return guard([&] { *used = of(p).is_used_elsewhere(value); });
}
Status carry(void* p, Id segment, Id value) {
  return guard([&] { of(p).carry(segment, value); });
}

Status low_rank(void* p, const LowRank* change) {
  return guard([&] { of(p).add_low_rank(*change); });
}
Status foreign_weights(void* p, ForeignWeightsView* weights) {
  return guard([&] { *weights = of(p).foreign_weights(); });
}

constexpr ProgramApi api{sizeof(ProgramApi),
                         add_segment,
                         add_parameter,
                         tie,
                         input,
                         runtime,
                         incoming,
                         outgoing,
                         add_op,
                         replace_operand,
                         erase,
                         set_attr,
                         get_attr,
                         set_parameter,
                         value_info,
                         op_info,
                         segment_info,
                         segment_count,
                         ops,
                         values,
                         split,
                         shard_state,
                         recompute_segment,
                         pipeline,
                         replace_op,
                         device,
                         place,
                         run_on,
                         used_elsewhere,
                         choose_to_fit,
                         share_saved,
                         tier,
                         tiers,
                         set_matrices,
                         matrices,
                         add_state,
                         add_tally,
                         low_rank,
                         foreign_weights,
                         share_sequence,
                         split_beyond,
                         carry,
                         flat_parameters,
                         flat_buffer,
                         lie_within,
                         placement,
                         place_over,
                         view,
                         axis_info,
                         step_context,
                         vary,
                         periodic,
                         evaluate_with,
                         replace_value,
                         shape,
                         add_value,
                         gather_as,
                         count_quantized,
                         layer_flops,
                         optimizer_state};

}  // namespace

const ProgramApi& program_api() { return api; }

}  // namespace prun
