// Implements halt_beyond.
#include <vector>

#include "cpu/dispatch.hpp"
#include "prun/op.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

void halt_beyond(const KernelArgs& args, const KernelContext&) {
  const auto* const needed = args.operands[0].as<const double>();
  for (std::int64_t layer = 0; layer < args.operands[0].dim[0]; ++layer)
    if (needed[2 * layer] > needed[2 * layer + 1]) *args.operands[1].as<double>() = 1;
}

Kernel select_halt_beyond(const OpShape& s) {
  return s.operand[0].dtype == DType::f64 && s.operand[1].dtype == DType::f64 ? halt_beyond : nullptr;
}

}  // namespace

std::vector<KernelDef> bound_kernels();
std::vector<KernelDef> bound_kernels() { return {{"halt_beyond", select_halt_beyond}}; }

}  // namespace prun::cpu::PRUN_ISA
