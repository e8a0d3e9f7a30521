// Implements lm_head_groups: one thread adds up the rows of lm_head_loss once more in their order, each to
// its group.
#include <cmath>
#include <vector>

#include "cpu/dispatch.hpp"
#include "prun/op.hpp"

namespace prun::cpu::PRUN_ISA {

std::vector<KernelDef> lm_head_groups_kernels();

namespace {

template <class C>
void lm_head_groups(const KernelArgs& args, const KernelContext&) {
  const Tensor* o = args.operands;
  const std::int64_t rows = o[3].elements(), count = o[5].dim[1];
  const auto *targets = o[3].as<const std::int32_t>(), *groups = o[4].as<const std::int32_t>();
  double* const sums = o[5].as<double>() + args.layer * count * 2;
  for (std::int64_t r = 0; r < rows; ++r) {
    if (targets[r] < 0 || groups[r] < 0 || groups[r] >= count) continue;
    const double lse =
        static_cast<double>(o[0].as<const C>()[r]) + std::log(static_cast<double>(o[1].as<const C>()[r]));
    double* const sum = sums + 2 * groups[r];
    sum[0] += lse - static_cast<double>(o[2].as<const C>()[r]) + args.attrs[0].f * lse * lse;
    sum[1] += 1;
  }
}

Kernel select(const OpShape& s) {
  if (!same_type(s, {0, 1, 2}) || !same_type(s, {3, 4})) return nullptr;
  return choose_state(s.operand[0].dtype, []<class C>() -> Kernel { return lm_head_groups<C>; });
}

}  // namespace

std::vector<KernelDef> lm_head_groups_kernels() { return {{"lm_head_groups", select}}; }

}  // namespace prun::cpu::PRUN_ISA
