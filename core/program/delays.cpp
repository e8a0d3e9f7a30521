#include "program/delays.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "ops/base_ops.hpp"
#include "program/passes.hpp"
#include "program/step.hpp"

namespace prun {
namespace {

class Refusal {
 public:
  explicit Refusal(const Delays& delays) : delays_(delays) {}

  [[noreturn]] void operator()(const std::string& what, const char* instead) const {
    const char* const why = delays_.at_once
                                ? "cannot train with weights that each stage updates after each microbatch "
                                  "(a schedule with delay=stages): "
                                : "cannot train with weights one update old (a schedule with delay=1): ";
    throw_error(ErrorCode::unsupported, why, what, "; ", instead);
  }

 private:
  const Delays& delays_;
};

void check_lie_whole(const Program& program, const Refusal& refuse) {
  for (const Bucket& bucket : program.buckets()) {
    if (gathers_parameters(program, bucket))
      refuse("parameters are sharded", "take stage = 1 of strategy zero, or another schedule");
    if (keeps_summed_parts(program, bucket))
      refuse("gradients are reduced after each microbatch",
             "take stage = 1 of strategy zero, or another schedule");
  }
  for (Id segment = program.step_segment() + 1; segment < program.segment_count(); ++segment)
    for (const Id op : program.segment(segment).ops(FunctionKind::gather))
      for (const Id id : program.op(op).operands)
        if (id != none && program.value(id).role == Role::fetched)
          refuse("'" + program.value(id).name + "' of segment '" + program.segment(segment).name +
                     "' is made of a weight once a step",
                 "leave that out (strategy fp8, cache_weights), or take another schedule");
  if (!program.requests().more_devices.empty())
    refuse("a strategy stores values on another device", "leave it out, or take another schedule");
  if (program.find_runtime("loss_scale") != none)
    refuse("the next step's loss is scaled before it is known whether this step is kept",
           "take precision.compute = \"bf16\", or another schedule");
}

// Refuses a parameter of two segments, or of two ranks: its updates would have to come together.
void check_is_not_tied(const Program& program, const Refusal& refuse) {
  for (Id segment = program.step_segment() + 1; segment < program.segment_count(); ++segment)
    for (const FunctionKind kind : microbatch_functions)
      for (const Id op : program.segment(segment).ops(kind))
        for (const Id id : program.op(op).operands)
          if (id != none && program.value(id).role == Role::parameter &&
              (program.value(id).segment != segment || program.value(id).copy_of != none))
            refuse("'" + full_name(program, id, 0) + "' would be updated by two stages",
                   "let only one stage use it (model.tied = false, model.mtp_layers = 0), or take another "
                   "schedule");
}

// Refuses updates that need what the end of a step makes: it is there too late for them.
void check_needs_nothing_of_all(const Program& program, const Refusal& refuse) {
  std::set<Id> late;
  for (const FunctionKind kind : {FunctionKind::finish, FunctionKind::report})
    for (const Id op : program.segment(program.step_segment()).ops(kind))
      for (std::size_t i = 0; i < program.op(op).operands.size(); ++i)
        if (program.op(op).access(i) != Access::read) late.insert(program.op(op).operands[i]);
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    for (const Id op : program.segment(segment).ops(FunctionKind::update))
      for (const Id id : program.op(op).operands)
        if (id != none && late.contains(id))
          refuse("updates read '" + program.value(id).name + "', which needs all stages",
                 "take another schedule");
}

void check_updates_alone(const Program& program, const Refusal& refuse) {
  check_is_not_tied(program, refuse);
  if (!program.buckets().empty())
    refuse("a stage's ranks would gather parameters after each microbatch",
           "leave strategy zero out (stage = 0), or take another schedule");
  if (!program.carried().empty())
    refuse("a segment carries a value past several stages", "take another schedule");
  check_needs_nothing_of_all(program, refuse);
}

Id add_before(Program& program, Id parameter, std::int32_t age) {
  Value before = program.value(parameter);
  before.name += name_of_before(age);
  before.role = Role::state;
  before.gradient = before.master = before.copy_of = none;
  before.states.clear();
  before.scales.clear();
  before.before.clear();
  before.bucket = -1;
  before.view.reset();
  before.age = age;
  before.before_of = parameter;
  return program.add_value(std::move(before));
}

void read_instead(Program& program, Id parameter, Id before) {
  for (Id segment = program.step_segment() + 1; segment < program.segment_count(); ++segment)
    program.replace_in(segment, microbatch_functions, parameter, before);
}

// Copies each version into the place of the one before it, the oldest first.
void copy_first(Program& program, Id parameter) {
  const Id segment = program.value(parameter).segment;
  const std::vector<Id>& updates = program.segment(segment).ops(FunctionKind::update);
  const Id first = updates.empty() ? none : updates.front();
  for (auto age = static_cast<std::int64_t>(program.value(parameter).before.size()); age > 0; --age)
    program.add_op(segment, FunctionKind::update, Part::input, base_ops::copy,
                   {program.as_before(parameter, age - 1), program.as_before(parameter, age)}, {}, first);
}

// Says whether a function may run while the step before is not done.
bool is_early(const Program& program, FunctionKind kind) {
  return kind != FunctionKind::begin && kind != FunctionKind::finish && kind != FunctionKind::diagnose &&
         (kind != FunctionKind::update || program.delays().at_once) && kind != FunctionKind::report;
}

bool touches_any(const Program& program, Id op, const std::set<Id>& values, bool changes) {
  const Op& of = program.op(op);
  for (std::size_t i = 0; i < of.operands.size(); ++i)
    if ((!changes || of.access(i) != Access::read) && values.contains(of.operands[i])) return true;
  return false;
}

void insert_operands(const Program& program, Id op, std::set<Id>& values) {
  for (const Id operand : program.op(op).operands)
    if (operand != none) values.insert(operand);
}

// Returns the values that must be there before a step ends.
std::set<Id> touched_early(const Program& program) {
  std::set<Id> values;
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    for (int kind = 0; kind < function_kinds; ++kind)
      if (is_early(program, static_cast<FunctionKind>(kind)))
        for (const Id op : program.segment(segment).ops(static_cast<FunctionKind>(kind)))
          insert_operands(program, op, values);
  return values;
}

// Moves to the end of a step what follows from how the step before ends and what no pass reads: then a step's
// passes may begin before that is known.
void put_off_to_finish(Program& program) {
  SegmentData& step = program.segment(program.step_segment());
  std::vector<Id>&begin = step.ops(FunctionKind::begin), &finish = step.ops(FunctionKind::finish);
  std::set<Id> early = touched_early(program);
  std::vector<Id> late = begin, stay;
  for (bool found = true; found;) {
    const auto first =
        std::find_if(late.begin(), late.end(), [&](Id op) { return touches_any(program, op, early, true); });
    if (!(found = first != late.end())) break;
    insert_operands(program, *first, early);
    stay.push_back(*first);
    late.erase(first);
  }
  std::erase_if(begin, [&](Id op) { return std::find(stay.begin(), stay.end(), op) == stay.end(); });
  for (const Id op : late) program.op(op).function = FunctionKind::finish;
  finish.insert(finish.begin(), late.begin(), late.end());
}

}  // namespace

std::string name_of_before(std::int64_t updates) {
  return updates == 1 ? ".before" : ".before" + std::to_string(updates);
}

void delay_weights(Program& program, const Delays& delays) {
  if (delays.of.empty()) return;
  program.set_delays(delays);
  const Refusal refuse(delays);
  check_lie_whole(program, refuse);
  if (delays.at_once) {
    update_at_once(program);
    check_updates_alone(program, refuse);
  }
  put_off_to_finish(program);
  const auto oldest = static_cast<std::int32_t>(program.delay());
  for (const Id parameter : program.parameters()) {
    if (oldest == 0 || (program.value(parameter).gradient == none && !program.value(parameter).untrained))
      continue;
    for (std::int32_t age = 1; age <= oldest; ++age) {
      const Id before = add_before(program, parameter, age);
      program.value(parameter).before.push_back(before);
    }
    read_instead(program, parameter, program.as_before(parameter, oldest));
    copy_first(program, parameter);
  }
}

}  // namespace prun
