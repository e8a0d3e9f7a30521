#include "update_fusion.hpp"

#include <algorithm>
#include <vector>

#include "prun/ops/optimizer.hpp"
#include "prun/ops/speculation.hpp"

namespace prun {
namespace {

using ops::AdamW, ops::KeepOld, ops::AdamWKeepingOld;
using Ids = std::vector<Id>;

class KeptUpdates {
 public:
  explicit KeptUpdates(const Segment& segment)
      : program_(segment.program()), ops_(segment.operations(FunctionKind::speculate)) {}

  void fuse() {
    for (const Id op : Ids(ops_))
      if (is<AdamW>(op)) fuse(op);
  }

 private:
  template <class Op>
  bool is(Id op) const {
    return program_.op(op).kind.view() == Op::kind;
  }
  Ids operands(Id op) const {
    const Array<Id> all = program_.op(op).operands;
    return {all.begin(), all.end()};
  }

  // Fuses if all that the update changes is kept, and its moments have no scales.
  void fuse(Id update) {
    constexpr int shared = operand_of<AdamWKeepingOld>("old_parameter");
    const Ids of_update = operands(update);
    if (std::any_of(of_update.begin() + shared, of_update.end(), [](Id scale) { return scale != none; }))
      return;
    Ids all(of_update.begin(), of_update.begin() + shared), keeps;
    for (std::size_t i = 0; i < shared; ++i) {
      if (AdamW::operands[i].access != Access::update) continue;
      const Id keep = of_update[i] == none ? none : keep_of(of_update[i], update);
      if (of_update[i] != none && keep == none) return;
      all.push_back(keep == none ? none : operands(keep)[operand_of<KeepOld>("old")]);
      if (keep != none) keeps.push_back(keep);
    }
    std::vector<AttrValue> attrs;
    for (const AttrDef& attr : AdamW::attrs) attrs.push_back({attr.name, program_.attr(update, attr.name)});
    raise(program_.api().replace_op(program_.handle(), update, AdamWKeepingOld::kind,
                                    {all.data(), all.size()}, {attrs.data(), attrs.size()}));
    for (const Id keep : keeps) {
      program_.erase(keep);
      std::erase(ops_, keep);
    }
  }

  // Returns the op that keeps a value where the update runs, and could as well stand right in front of it;
  // `none` if there is no such op.
  Id keep_of(Id value, Id update) const {
    for (auto op = std::find(ops_.rbegin(), ops_.rend(), update) + 1; op != ops_.rend(); ++op) {
      const Ids all = operands(*op);
      if (is<KeepOld>(*op) && all[operand_of<KeepOld>("x")] == value)
        return all[operand_of<KeepOld>("did")] == operands(update)[operand_of<AdamW>("keep")] &&
                       is_used_once(all[operand_of<KeepOld>("old")])
                   ? *op
                   : none;
      if (changes(*op, value)) return none;
    }
    return none;
  }

  bool changes(Id op, Id value) const {
    const OpInfo info = program_.op(op);
    for (std::uint64_t i = 0; i < info.operands.size; ++i)
      if (info.operands.data[i] == value && info.def->operands[i].access != Access::read) return true;
    return false;
  }

  bool is_used_once(Id value) const {
    return std::count_if(ops_.begin(), ops_.end(), [&](Id op) {
             const Ids all = operands(op);
             return std::find(all.begin(), all.end(), value) != all.end();
           }) == 1;
  }

  ProgramRef program_;
  Ids ops_;
};

}  // namespace

void fuse_kept_updates(ProgramRef program) {
  for (const Segment& segment : program.segments()) KeptUpdates(segment).fuse();
}

}  // namespace prun
