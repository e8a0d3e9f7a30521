// Cuts a program that trains nothing out of one that does: so parameters, their parts and their exchanges are
// those of training, whatever strategies and passes made of them.
#include <algorithm>
#include <set>

#include "program/passes.hpp"

namespace prun {
namespace {

class ForwardOnly {
 public:
  ForwardOnly(Program& program, std::span<const Id> results)
      : program_(program), needed_(results.begin(), results.end()) {}

  void run() {
    for (Id segment = program_.step_segment() + 1; segment < program_.segment_count(); ++segment)
      if (const Id out = program_.segment(segment).outgoing; out != none) needed_.insert(out);
    find_kept();
    std::erase_if(program_.carried(),
                  [&](const CarriedValue& carried) { return needed_.count(carried.value) == 0; });
    each_op([&](Id id) {
      if (kept_.count(id) == 0)
        program_.erase_op(id);
      else
        still(id);
    });
    forget_training();
    forget_unused();
  }

 private:
  static bool may_stay(FunctionKind kind) {
    return kind == FunctionKind::load || kind == FunctionKind::begin || kind == FunctionKind::renew ||
           kind == FunctionKind::gather || kind == FunctionKind::forward || kind == FunctionKind::finish ||
           kind == FunctionKind::report;
  }

  template <class Body>
  void each_op(Body&& body) {
    for (Id segment = 0; segment < program_.segment_count(); ++segment)
      for (int kind = 0; kind < function_kinds; ++kind) {
        const std::vector<Id> ops = program_.segment(segment).ops(static_cast<FunctionKind>(kind));
        for (Id op : ops) body(op);
      }
  }

  // Keeps ops until no other op makes what one that stays reads.
  void find_kept() {
    for (bool grown = true; grown;) {
      grown = false;
      each_op([&](Id id) {
        if (kept_.count(id) == 0 && may_stay(program_.op(id).function) && makes_needed(program_.op(id)))
          grown |= keep(id);
      });
    }
  }

  // Parameters are gathered for all ops that read the members of their bucket.
  bool makes_needed(const Op& op) const {
    if (op.function == FunctionKind::gather || op.function == FunctionKind::renew) return true;
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (op.access(i) != Access::read && needed_.count(op.operands[i]) != 0) return true;
    return false;
  }

  bool keep(Id id) {
    kept_.insert(id);
    const Op& op = program_.op(id);
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (op.operands[i] != none && op.access(i) != Access::write) needed_.insert(op.operands[i]);
    return true;
  }

  // Leaves out of an op that stays all gradients, results that only gradients need, and noise.
  void still(Id id) {
    Op& op = program_.op(id);
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (op.operands[i] == none) continue;
      const bool spare = op.access(i) == Access::write && op.def->operands[i].optional;
      if (spare && needed_.count(op.operands[i]) == 0) op.operands[i] = none;
      if (op.operands[i] == none || program_.value(op.operands[i]).role != Role::gradient) continue;
      if (!op.def->operands[i].optional)
        throw_error(ErrorCode::unsupported, "cannot evaluate without training: operand '",
                    op.def->operands[i].name, "' of op '", op.kind(), "' in segment '",
                    program_.segment(op.segment).name,
                    "' is a gradient; make it optional, or give the op a split()");
      op.operands[i] = none;
    }
    if (op.def->noise) program_.set_attr(id, op.def->noise, 0);
  }

  void forget_training() {
    for (Id id = 0; id < program_.value_count(); ++id) {
      Value& value = program_.value(id);
      value.gradient = value.master = none;
      value.states.clear();
      value.scales.clear();
    }
    for (Bucket& bucket : program_.buckets()) {
      bucket.all_gradients = bucket.own_gradients = bucket.master = none;
      bucket.states.clear();
      bucket.scales.clear();
    }
    for (CarriedValue& carried : program_.carried()) carried.gradient = none;
    for (Id segment = 0; segment < program_.segment_count(); ++segment) {
      SegmentData& data = program_.segment(segment);
      data.incoming_gradient = data.outgoing_gradient = none;
      data.recompute_to_fit = false;
    }
  }

  void forget_unused() {
    std::set<Id> used;
    for (Id op : kept_)
      for (Id operand : program_.op(op).operands) used.insert(operand);
    for (const Bucket& bucket : program_.buckets())
      used.insert({bucket.all_parameters, bucket.own_parameters});
    for (Id id = 0; id < program_.value_count(); ++id)
      if (program_.value(id).role != Role::parameter && used.count(id) == 0) program_.forget_value(id);
  }

  Program& program_;
  std::set<Id> needed_;
  std::set<Id> kept_;
};

}  // namespace

void keep_forward(Program& program, std::span<const Id> results) { ForwardOnly(program, results).run(); }

}  // namespace prun
