#include <algorithm>
#include <set>

#include "program/update.hpp"

namespace prun {
namespace {

// Compares what runs in the place of a segment's `update`, or before its numbers are known, with `update`.
class RepeatedUpdates {
 public:
  RepeatedUpdates(const Program& program, Id segment)
      : program_(program), segment_(program.segment(segment)), numbers_(decided_numbers()) {}

  void check() const {
    const bool settles = !segment_.ops(FunctionKind::settle).empty();
    if (settles == segment_.ops(FunctionKind::speculate).empty())
      throw_error(ErrorCode::bad_input, "cannot settle updates of segment '", segment_.name,
                  "': it has ops in one of `speculate` and `settle`; write both, or neither");
    if (!settles) return;
    check(FunctionKind::settle, FunctionKind::speculate);
    check(FunctionKind::speculate, FunctionKind::settle);
  }

 private:
  // Every op of `update` is in the function, in its order, and no other op that the two have in common.
  void check(FunctionKind function, FunctionKind other) const {
    const std::vector<Id>& all = segment_.ops(function);
    std::set<Id> repeated;
    auto at = all.begin();
    for (const Id op : segment_.ops(FunctionKind::update)) {
      at = std::find_if(at, all.end(), [&](Id there) { return stands_for(there, op); });
      if (at == all.end()) refuse(op, "`update`", function);
      repeated.insert(*at++);
    }
    for (const Id op : all)
      if (repeated.count(op) == 0 && has_like(other, op))
        refuse(op, detail::concat('`', name_of(function), '`'), FunctionKind::update);
  }

  bool has_like(FunctionKind function, Id op) const {
    const std::vector<Id>& all = segment_.ops(function);
    return std::any_of(all.begin(), all.end(),
                       [&](Id there) { return program_.op(there).def == program_.op(op).def; });
  }

  // Returns the numbers in whose place updates may read what ops of `settle` make of them.
  std::set<Id> decided_numbers() const {
    std::set<Id> read;
    for (const Id id : segment_.ops(FunctionKind::settle)) {
      const Op& op = program_.op(id);
      const bool decides = std::any_of(op.operands.begin(), op.operands.end(), [&](Id value) {
        return value != none && program_.value(value).role == Role::activation && writes(op, value);
      });
      if (!decides) continue;
      for (std::size_t i = 0; i < op.operands.size(); ++i)
        if (op.access(i) != Access::write) read.insert(op.operands[i]);
    }
    return read;
  }
  static bool writes(const Op& op, Id value) {
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (op.operands[i] == value && op.access(i) == Access::write) return true;
    return false;
  }

  // Returns whether an op does what one of `update` does, but for numbers that are decided later.
  bool stands_for(Id repeated, Id update) const {
    const Op &is = program_.op(repeated), &was = program_.op(update);
    if (is.def != was.def) return false;
    for (std::size_t i = 0; i < is.operands.size(); ++i) {
      const Id value = is.operands[i];
      const bool decided = value != none && program_.value(value).role == Role::activation &&
                           numbers_.count(was.operands[i]) != 0;
      if (value != was.operands[i] && !decided) return false;
    }
    for (std::size_t i = 0; i < is.attrs.size(); ++i) {
      const char* const name = is.def->attrs[i].name;
      if (program_.attr(repeated, name) != program_.attr(update, name)) return false;
    }
    return true;
  }

  [[noreturn]] void refuse(Id op, std::string_view in, FunctionKind missing) const {
    throw_error(
        ErrorCode::unsupported, "cannot settle updates of segment '", segment_.name, "': op '",
        program_.op(op).kind(), "' of ", in, " is not in `", name_of(missing),
        "`; let strategies that edit `update` stand in front of the one that writes `settle`, or keep "
        "that from it (offload: speculate = \"none\")");
  }

  const Program& program_;
  const SegmentData& segment_;
  const std::set<Id> numbers_;
};

}  // namespace

void check_settled(const Program& program) {
  for (Id id = program.step_segment() + 1; id < program.segment_count(); ++id)
    RepeatedUpdates(program, id).check();
}

}  // namespace prun
