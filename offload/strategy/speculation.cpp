#include "speculation.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "spread.hpp"
#include "updates.hpp"

namespace prun {
namespace {

class Speculation {
 public:
  Speculation(ProgramRef program, std::int32_t device)
      : program_(program),
        device_(device),
        segments_(program.segments()),
        keep_(on_host("keep")),
        clip_(on_host("clip")) {
    find_late();
  }

  void run() {
    bool any = false;
    for (std::size_t i = 1; i < segments_.size(); ++i)
      if (const std::vector<Id> ops = segments_[i].operations(FunctionKind::update); may_speculate(ops)) {
        if (!any) begin();
        any = true;
        write(segments_[i], ops);
      }
  }

 private:
  const Segment& step() const { return segments_.front(); }

  // Returns the copy of a number of the step that updates on the host read, or none.
  Id on_host(std::string_view number) const {
    const Id of = program_.runtime(number);
    for (const Id id : step().operations(FunctionKind::update))
      if (const std::vector<Id> operands = operands_of(program_.op(id)); operands.front() == of)
        return operands.back();
    return none;
  }

  // Finds the numbers on the host that are not known before the norm: what an op behind `begin` changes.
  void find_late() {
    std::set<Id> changed;
    for (const ProgramView::Op& op : program_.view().ops) {
      const OpInfo& info = op.info;
      if (info.segment == step().id() &&
          (info.function == FunctionKind::load || info.function == FunctionKind::begin))
        continue;
      for (std::uint64_t i = 0; i < info.operands.size; ++i)
        if (info.def->operands[i].access != Access::read) changed.insert(info.operands.data[i]);
    }
    for (const Id id : step().operations(FunctionKind::update))
      if (const std::vector<Id> copy = operands_of(program_.op(id)); changed.count(copy.front()) != 0)
        late_.insert(copy.back());
  }

  // Returns whether an op reads a number that is late, beside the two that the norm decides.
  bool reads_late(const OpInfo& op) const {
    return std::any_of(op.operands.begin(), op.operands.end(),
                       [&](Id id) { return id != keep_ && id != clip_ && late_.count(id) != 0; });
  }

  // Ops of `update` may run twice if each leaves everything as it is where `keep` is 0.
  bool may_speculate(const std::vector<Id>& ops) const {
    return keep_ != none && clip_ != none && !ops.empty() && std::all_of(ops.begin(), ops.end(), [&](Id id) {
             const OpInfo op = program_.op(id);
             bool keeps = op.def->exchange == nullptr && !op.def->copies && !reads_late(op);
             for (std::uint64_t i = 0; i < op.operands.size; ++i)
               keeps &= op.def->operands[i].access != Access::write;
             return keeps && std::find(op.operands.begin(), op.operands.end(), keep_) != op.operands.end();
           });
  }

  // Copies what is known before the norm to the host in the step's `speculate`.
  void begin() {
    step().run_on(FunctionKind::speculate, device_);
    for (const Id id : step().operations(FunctionKind::update)) {
      const std::vector<Id> copy = operands_of(program_.op(id));
      if (late_.count(copy.back()) != 0) continue;
      program_.erase(id);
      step().insert_on(FunctionKind::speculate, none, "copy", {copy.front(), copy.back()});
    }
    halt_ = program_.runtime("host.halt");
    program_.place(halt_, pinned);
    step().insert_on(FunctionKind::speculate, none, "copy", {program_.runtime("halt"), halt_});
    beyond_ = program_.runtime("host.beyond");
    program_.place(beyond_, pinned);
  }

  void write(const Segment& segment, const std::vector<Id>& ops) const {
    segment.run_on(FunctionKind::speculate, device_);
    segment.run_on(FunctionKind::settle, device_);
    const Id did = segment.insert(FunctionKind::speculate, none, "begin_speculation", {halt_, beyond_}, 1)[0];
    const auto [restore, redo] = settle(segment, did);
    program_.place(did, beside());
    for (const Id value : changed_by(ops)) {
      const Id old = keep(segment, value, did);
      segment.insert_on(FunctionKind::settle, none, "restore_old", {old, restore, value});
    }
    for (const Id op : ops) {
      repeat(segment, FunctionKind::speculate, op, {{keep_, did}, {clip_, did}});
      repeat(segment, FunctionKind::settle, op, {{keep_, redo}});
    }
  }

  // Returns the place for a value as it was: a copy is placed as its original on every axis.
  Id keep(const Segment& segment, Id value, Id did) const {
    const Id old = segment.insert(FunctionKind::speculate, none, "copy", {value}, 1)[0];
    program_.replace_op(segment.operations(FunctionKind::speculate).back(), "keep_old", {value, did, old});
    program_.place(old, beside());
    return old;
  }

  // Returns the numbers `restore` and `redo`.
  std::pair<Id, Id> settle(const Segment& segment, Id did) const {
    const std::vector<Id> made =
        segment.insert(FunctionKind::settle, none, "settle_update", {keep_, clip_, did}, 3);
    const Id op = segment.operations(FunctionKind::settle).back();
    program_.replace_operand(op, 3, beyond_);
    return {made[1], made[2]};
  }

  MemoryPlace beside() const { return {device_, Space::host}; }

  std::vector<Id> changed_by(const std::vector<Id>& ops) const {
    std::vector<Id> changed;
    for (const Id id : ops) {
      const OpInfo op = program_.op(id);
      for (std::uint64_t i = 0; i < op.operands.size; ++i)
        if (const Id value = op.operands.data[i];
            value != none && op.def->operands[i].access == Access::update &&
            std::find(changed.begin(), changed.end(), value) == changed.end())
          changed.push_back(value);
    }
    return changed;
  }

  // Repeats an op in another function, with some of its operands replaced.
  void repeat(const Segment& segment, FunctionKind function, Id id, const std::map<Id, Id>& instead) const {
    const OpInfo op = program_.op(id);
    std::vector<Id> operands = operands_of(op);
    for (Id& operand : operands)
      if (const auto found = instead.find(operand); found != instead.end()) operand = found->second;
    std::vector<AttrValue> attrs;
    for (std::uint64_t i = 0; i < op.def->attr_count; ++i)
      attrs.push_back({op.def->attrs[i].name, program_.attr(id, op.def->attrs[i].name)});
    raise(program_.api().op(program_.handle(), segment.id(), function, none, op.kind,
                            {operands.data(), operands.size()}, {attrs.data(), attrs.size()}, nullptr, 0));
  }

  ProgramRef program_;
  const std::int32_t device_;
  const std::vector<Segment> segments_;
  const Id keep_, clip_;
  std::set<Id> late_;
  Id halt_ = none, beyond_ = none;
};

}  // namespace

void speculate_updates(ProgramRef program, std::int32_t device) { Speculation(program, device).run(); }

}  // namespace prun
