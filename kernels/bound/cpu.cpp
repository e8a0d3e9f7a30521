// Implements halt_beyond.
#include <vector>

#include "cpu/dispatch.hpp"
#include "prun/op.hpp"
#include "prun/ops/bound.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

void halt_beyond(const KernelArgs& args, const KernelContext&) {
  const ArgsOf<ops::HaltBeyond> op(args);
  const auto* const needed = op["needed"].as<const double>();
  for (std::int64_t layer = 0; layer < op["needed"].dim[0]; ++layer)
    if (needed[2 * layer] > needed[2 * layer + 1]) *op["halt"].as<double>() = 1;
}

Kernel select_halt_beyond(const OpShape& shape) {
  const ShapeOf<ops::HaltBeyond> s(shape);
  return s["needed"].dtype == DType::f64 && s["halt"].dtype == DType::f64 ? halt_beyond : nullptr;
}

}  // namespace

std::vector<KernelDef> bound_kernels();
std::vector<KernelDef> bound_kernels() { return {{ops::HaltBeyond::kind, select_halt_beyond}}; }

}  // namespace prun::cpu::PRUN_ISA
