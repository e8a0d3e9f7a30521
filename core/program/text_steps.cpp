#include "program/text_steps.hpp"

#include <algorithm>

#include "ops/base_ops.hpp"

namespace prun {

namespace {

bool writes(const Op& op, Id value) {
  for (std::size_t i = 0; i < op.operands.size(); ++i)
    if (op.operands[i] == value && op.access(i) != Access::read) return true;
  return false;
}

// Returns the positions of the values that a segment's logits are of, if it gives any. Behind the op that
// makes logits they may change their type, or be put together.
std::optional<Dim> positions_of_logits(const Program& program, const std::vector<Id>& ops) {
  Id logits = none;
  for (auto id = ops.rbegin(); id != ops.rend(); ++id) {
    const Op& op = program.op(*id);
    const bool ends = op.is(base_ops::whole_logits);
    if (!ends && (logits == none || !writes(op, logits))) continue;
    const Id from = op.operands.front();
    if (!ends && program.value(from).dims.size() > program.value(logits).dims.size())
      return program.value(from).dims[1];
    logits = from;
  }
  return {};
}

}  // namespace

std::optional<Dim> positions_of_head(const Program& program) {
  for (Id segment = program.step_segment() + 1; segment < program.segment_count(); ++segment)
    if (const auto positions =
            positions_of_logits(program, program.segment(segment).ops(FunctionKind::forward)))
      return positions;
  return {};
}

bool steps_by_positions(const Program& program) { return program.find_runtime("position") != none; }

TextSteps::TextSteps(const Program& program) : program_(program), origins_(program.value_count()) {
  const std::optional<Dim> positions = positions_of_head(program);
  if (!positions) return;
  for (Id id = 0; id < program.value_count(); ++id) {
    const Value& value = program.value(id);
    origins_[id] = {std::any_of(value.dims.begin(), value.dims.end(),
                                [&](const Dim& dim) { return dim.name == positions->name; }),
                    value.role == Role::input};
  }
  for (Id segment = program.step_segment() + 1; segment < program.segment_count(); ++segment)
    visit_segment(segment);
  for (const Id op : stepped_) find_left(op);
}

// The next repetition takes in what one hands on.
void TextSteps::visit_segment(Id id) {
  const SegmentData& segment = program_.segment(id);
  hand_on(program_.segment(id - 1).outgoing, segment.incoming);
  do {
    for (const Id op : segment.ops(FunctionKind::forward)) visit(op);
  } while (segment.repeat > 1 && hand_on(segment.outgoing, segment.incoming));
}

bool TextSteps::hand_on(Id from, Id to) {
  if (from == none || to == none) return false;
  const Origin before = origins_[to];
  origins_[to].moves |= origins_[from].moves;
  origins_[to].of_text |= origins_[from].of_text;
  return origins_[to].moves != before.moves || origins_[to].of_text != before.of_text;
}

void TextSteps::visit(Id id) {
  const Op& op = program_.op(id);
  Origin all;
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    if (op.operands[i] == none) continue;
    all.moves |= origins_[op.operands[i]].moves;
    if (op.access(i) != Access::write) all.of_text |= origins_[op.operands[i]].of_text;
  }
  for (std::size_t i = 0; i < op.operands.size(); ++i)
    if (op.operands[i] != none && op.access(i) != Access::read) origins_[op.operands[i]] = all;
  if (all.moves) stepped_.insert(id);
  if (all.of_text && !all.moves)
    once_.insert(id);
  else
    once_.erase(id);
}

void TextSteps::find_left(Id id) {
  const Op& op = program_.op(id);
  const SegmentData& segment = program_.segment(op.segment);
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    const Id value = op.operands[i];
    if (value == none || op.access(i) == Access::write) continue;
    if (program_.value(value).role != Role::activation || origins_[value].moves || !origins_[value].of_text)
      continue;
    left_.insert(value);
    may_be_left_ &= op.access(i) == Access::read && program_.value(value).segment == op.segment &&
                    value != segment.incoming && value != segment.outgoing && !program_.is_carried(value);
  }
}

void keep_what_is_left(Program& program) {
  const TextSteps steps(program);
  PRUN_CHECK(steps.may_be_left(), "a step reads what is computed once and not kept");
  for (const Id id : steps.left()) {
    Value& value = program.value(id);
    value.name = detail::concat("once.", id);
    value.role = Role::state;
    value.carried = true;
  }
}

std::set<Id> left_by_first_step(const Program& program) {
  std::set<Id> left;
  for (Id segment = program.step_segment() + 1; segment < program.segment_count(); ++segment)
    for (const Id id : program.segment(segment).ops(FunctionKind::forward)) {
      const Op& op = program.op(id);
      for (std::size_t i = 0; i < op.operands.size(); ++i)
        if (op.operands[i] != none && op.access(i) == Access::write &&
            program.value(op.operands[i]).role == Role::state && program.value(op.operands[i]).carried)
          left.insert(op.operands[i]);
    }
  return left;
}

}  // namespace prun
