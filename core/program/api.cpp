// This is the plugin's side of Program: every call is guarded, and nothing is thrown across the border.
#include <algorithm>

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
Status add_untrained(void* p, Id segment, const ParameterSpec* spec, Id* result) {
  return guard([&] { *result = of(p).add_untrained(segment, *spec); });
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

Status add_op(void* p, Id segment, FunctionKind function, Id before, Text kind, Array<Id> inputs,
              Array<AttrValue> attrs, Id* outputs, std::uint64_t output_count) {
  return guard([&] {
    if (!of(p).is_shown(segment, function))
      throw_error(ErrorCode::bad_input, "op '", kind.view(), "' is to run in function '", name_of(function),
                  "' of segment '", of(p).segment(segment).name,
                  "', which another device runs; that one lowers it");
    const Id op = of(p).op_count();
    const std::vector<Id> created =
        of(p).add_op_creating(segment, function, Part::input, kind.view(), span(inputs), span(attrs), before);
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
    edit(of(p));
    of(p).note_edit(op);
  });
}
Status replace_operand(void* p, Id op, std::int32_t index, Id value) {
  return edit(p, op, [&](Program& to) { to.replace_operand(op, static_cast<std::size_t>(index), value); });
}
Status replace_kind(void* p, Id op, Text kind) {
  return edit(p, op, [&](Program& to) { to.replace_kind(op, kind.view()); });
}
Status replace_op(void* p, Id op, Text kind, Array<Id> operands, Array<AttrValue> attrs) {
  return edit(p, op, [&](Program& to) {
    to.replace_op(op, kind.view(), {operands.begin(), operands.end()}, span(attrs));
  });
}
Status erase(void* p, Id op) {
  return guard([&] { of(p).erase_op(op); });
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

Status value_info(void* p, Id id, ValueInfo* info) {
  return guard([&] {
    const Value& value = of(p).value(id);
    *info = {value.role, value.dtype,  value.segment, static_cast<std::int32_t>(value.dims.size()),
             {},         value.frozen, value.decay,   value.lr_scale,
             value.name};
    std::copy(value.dims.begin(), value.dims.end(), info->dims);
  });
}

Status op_info(void* p, Id id, OpInfo* info) {
  return guard([&] {
    const Op& op = of(p).op(id);
    *info = {op.kind(), op.segment, op.function, op.part, {op.operands.data(), op.operands.size()}, op.def};
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

Status split(void* p, Text dim, Text axis) {
  return guard([&] { of(p).split(dim.view(), axis.view()); });
}
Status split_in(void* p, Text dim, Text axis, SplitScope scope) {
  return guard([&] { of(p).split(dim.view(), axis.view(), scope); });
}

Status axis_extent(void* p, Text axis, std::int64_t* extent) {
  return guard([&] {
    const std::vector<AxisId> found = of(p).mesh().all_of(axis.view());
    if (found.empty()) throw_error(ErrorCode::bad_input, "the mesh has no axis '", axis.view(), "'");
    *extent = 1;
    for (const AxisId one : found) *extent *= of(p).mesh().extent(one);
  });
}

Status keep_in_parts(void* p, Text axis, KeptInParts kept) {
  return guard([&] { of(p).requests().keep_in_parts(of(p).mesh(), {axis.view()}, kept); });
}
Status keep_in_parts_over(void* p, Array<Text> axes, KeptInParts kept) {
  return guard([&] {
    std::vector<std::string_view> names;
    for (const Text& axis : axes) names.push_back(axis.view());
    of(p).requests().keep_in_parts(of(p).mesh(), names, kept);
  });
}

Status copy_within(void* p, Array<Text> axes) {
  return guard([&] {
    std::vector<std::string_view> names;
    for (const Text& axis : axes) names.push_back(axis.view());
    of(p).requests().copy_within(of(p).mesh(), names);
  });
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
Status keep_saved(void* p, Id segment, MemoryPlace place) {
  return guard([&] { of(p).share_saved(segment, {{place}}); });
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
                         replace_kind,
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
                         axis_extent,
                         keep_in_parts,
                         recompute_segment,
                         pipeline,
                         replace_op,
                         device,
                         place,
                         run_on,
                         used_elsewhere,
                         keep_saved,
                         choose_to_fit,
                         share_saved,
                         split_in,
                         keep_in_parts_over,
                         tier,
                         tiers,
                         set_matrices,
                         matrices,
                         add_untrained,
                         add_tally,
                         low_rank,
                         foreign_weights,
                         share_sequence,
                         split_beyond,
                         carry,
                         copy_within};

}  // namespace

const ProgramApi& program_api() { return api; }

}  // namespace prun
