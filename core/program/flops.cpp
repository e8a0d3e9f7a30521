#include "program/flops.hpp"

namespace prun {
namespace {

// Returns the FLOPs of one repetition of a segment.
double segment_flops(const Program& program, Id segment) {
  double flops = 0;
  for (Id id : program.segment(segment).ops(FunctionKind::forward)) {
    const Op& op = program.op(id);
    const OpCost cost = op.cost(program.shape(op));
    flops += (op.def->gradient_in_forward ? 1 : 3) * (cost.flops - cost.repeated);
  }
  return flops;
}

}  // namespace

double model_flops(const Program& program) {
  double flops = 0;
  for (Id id = 0; id < program.segment_count(); ++id)
    flops += segment_flops(program, id) * static_cast<double>(program.segment(id).repeat);
  return flops;
}

std::vector<double> chain_flops(const Program& program) {
  std::vector<double> flops;
  for (Id segment = program.step_segment() + 1; segment < program.segment_count(); ++segment)
    flops.insert(flops.end(), static_cast<std::size_t>(program.segment(segment).repeat),
                 segment_flops(program, segment));
  return flops;
}

}  // namespace prun
