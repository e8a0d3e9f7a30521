#include "placement/standing_exchanges.hpp"

namespace prun {

StandingExchanges::StandingExchanges(AxisState& axis) : axis_(axis) {
  const Program& program = axis.program();
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    for (const std::vector<Id>& function : program.segment(segment).functions)
      for (const Id id : function) {
        const Op& op = program.op(id);
        if (!op.exchange() || op.exchange()->kind != CommKind::all_to_all) continue;
        OpShape shape = program.shape(op);
        raise(op.def->rule(&shape));
        for (const Id blocks : {op.operands.front(), op.operands.back()})
          swapped_blocks_[blocks] = {shape.wholes[0], shape.wholes[1]};
      }
}

void StandingExchanges::want_whole(const Op& op, OpShape& shape) const {
  for (const Id blocks : {op.operands.front(), op.operands.back()})
    if (const auto swap = swapped_blocks_.find(blocks); swap != swapped_blocks_.end())
      for (const Name& dim : swap->second) shape.whole(dim);
}

void StandingExchanges::meet(const Op& op, const OpShape& shape, AxisSums& sums) {
  const AxisPlacement whole = AxisPlacement::replicated(), parts = AxisPlacement::sharded(shape.wholes[0]);
  const CommKind kind = op.exchange()->kind;
  const Id before = op.operands.front(), after = op.operands.back();
  const bool swaps = kind == CommKind::all_to_all, shifts = kind == CommKind::send,
             largest = op.exchange()->reduction == Reduction::max;
  if (swaps && shape.wholes[1].empty())
    axis_.refuse(
        op,
        "its rule does not mark both the dimension that was in parts and the one that comes to be as "
        "whole (s.whole)");
  // An op may have called the largest that it found a sum, although it is none.
  const AxisPlacement from = kind == CommKind::all_gather || swaps || shifts ? parts
                             : largest && axis_.now(before).is_maximum()     ? AxisPlacement::maximum()
                                                                             : AxisPlacement::partial();
  const AxisPlacement to = swaps ? AxisPlacement::sharded(shape.wholes[1])
                           : kind == CommKind::reduce_scatter || shifts ? parts
                                                                        : whole;
  const std::string& name = axis_.program().value(before).name;
  if (axis_.now(before) != from)
    axis_.refuse(op, "'", name, "' is ", to_text(axis_.now(before)), " but must be ", to_text(from),
                 " to be exchanged");
  if (sums.has_twin(before))
    axis_.refuse(op, "what all ranks add alike to '", name,
                 "' lies elsewhere; leave the exchange out, it follows from how the value lies");
  if (before == after) {
    axis_.change(after, to);
    sums.note_summed(after);
  } else {
    axis_.settle(after, to);
  }
}

}  // namespace prun
