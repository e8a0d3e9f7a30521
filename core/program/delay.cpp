// Weights of one update before. Each parameter that updates change gets a state beside it, NAME.before, that
// passes read in its place; an update first copies the parameter there and then changes it. So there are two
// versions, the newest always lies where it would without a delay, for whoever saves, evaluates or exports
// it, and a step that is not kept leaves W(t+1) = W(t).
//
// The alternatives: two parameters that change places with every step, for which all that looks at parameters
// between steps would have to know where the newest lies; and a third copy, which passes alone read.
#include <algorithm>
#include <set>

#include "program/passes.hpp"

namespace prun {
namespace {

constexpr FunctionKind passes[] = {FunctionKind::forward, FunctionKind::backward,
                                   FunctionKind::backward_weight};

void refuse(const char* what, const char* instead) {
  throw_error(ErrorCode::unsupported,
              "weights of one update before (a schedule with delay=1) lie beside those ", "of now, and here ",
              what, "; ", instead);
}

void check_lie_whole(const Program& program) {
  for (const Bucket& bucket : program.buckets()) {
    if (bucket.kept.parameters)
      refuse("ranks keep parameters in parts", "take stage = 1 of strategy zero, or another schedule");
    if (bucket.kept.gradients)
      refuse("gradients are summed over the ranks after each microbatch",
             "take stage = 1 of strategy zero, or another schedule");
  }
  if (!program.requests().more_devices.empty())
    refuse("a strategy keeps values on another device", "leave it out, or take another schedule");
  if (program.find_runtime("loss_scale") != none)
    refuse("the next step's loss is scaled before one knows whether this one is kept",
           "take precision.compute = \"bf16\", or another schedule");
}

Id add_before(Program& program, Id parameter) {
  Value before = program.value(parameter);
  before.name += ".before";
  before.role = Role::state;
  before.gradient = before.master = before.copy_of = none;
  before.states.clear();
  before.scales.clear();
  before.bucket = -1;
  return program.add_value(std::move(before));
}

void read_instead(Program& program, Id parameter, Id before) {
  for (Id segment = program.step_segment() + 1; segment < program.segment_count(); ++segment)
    for (const FunctionKind kind : passes)
      for (const Id op : program.segment(segment).ops(kind))
        for (std::size_t i = 0; i < program.op(op).operands.size(); ++i)
          if (program.op(op).operands[i] == parameter) program.replace_operand(op, i, before);
}

void copy_first(Program& program, Id parameter, Id before) {
  const Id segment = program.value(parameter).segment;
  const std::vector<Id>& updates = program.segment(segment).ops(FunctionKind::update);
  const Id first = updates.empty() ? none : updates.front();
  program.add_op(segment, FunctionKind::update, Part::input, "copy", {parameter, before}, {}, first);
}

// Whether a function runs while the step before may not be done.
bool is_early(FunctionKind kind) {
  return kind != FunctionKind::begin && kind != FunctionKind::finish && kind != FunctionKind::diagnose &&
         kind != FunctionKind::update && kind != FunctionKind::report;
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

// Values that must be there before a step ends.
std::set<Id> touched_early(const Program& program) {
  std::set<Id> values;
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    for (int kind = 0; kind < function_kinds; ++kind)
      if (is_early(static_cast<FunctionKind>(kind)))
        for (const Id op : program.segment(segment).ops(static_cast<FunctionKind>(kind)))
          insert_operands(program, op, values);
  return values;
}

// What follows from how the step before ends, and what no pass reads, is for the end of a step: then its
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

void delay_weights(Program& program) {
  program.set_delay(1);
  check_lie_whole(program);
  put_off_to_finish(program);
  for (const Id parameter : program.parameters()) {
    if (program.value(parameter).gradient == none && !program.value(parameter).untrained) continue;
    const Id before = add_before(program, parameter);
    program.value(parameter).before = before;
    read_instead(program, parameter, before);
    copy_first(program, parameter, before);
  }
}

}  // namespace prun
