#include "program/flops.hpp"

namespace prun {

double segment_flops(const Program& program, Id segment) {
  double flops = 0;
  for (Id id : program.segment(segment).ops(FunctionKind::forward)) {
    const Op& op = program.op(id);
    const OpCost cost = op.cost(program.shape(op));
    flops += (op.def->gradient_in_forward ? 1 : 3) * (cost.flops - cost.repeated);
  }
  return flops;
}

double model_flops(const Program& program) {
  double flops = 0;
  for (Id id = 0; id < program.segment_count(); ++id)
    flops += segment_flops(program, id) * static_cast<double>(program.segment(id).repeat);
  return flops;
}

}  // namespace prun
