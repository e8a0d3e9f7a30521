// Implements lm_head_groups: one thread adds up the rows of lm_head_loss once more in their order, each to
// its group.
#include <cmath>
#include <vector>

#include "cpu/dispatch.hpp"
#include "prun/ops/lm_head.hpp"

namespace prun::cpu::PRUN_ISA {

std::vector<KernelDef> lm_head_groups_kernels();

namespace {

template <class C>
void lm_head_groups(const KernelArgs& args, const KernelContext&) {
  const ArgsOf<ops::LmHeadGroups> op(args);
  const std::int64_t rows = op["targets"].elements(), count = op["sums"].dim[1];
  const C *gmax = op["gmax"].as<const C>(), *scaled = op["scaled"].as<const C>(),
          *hit = op["hit"].as<const C>();
  const auto *targets = op["targets"].as<const std::int32_t>(),
             *groups = op["groups"].as<const std::int32_t>();
  double* const sums = op["sums"].as<double>() + args.layer * count * 2;
  for (std::int64_t r = 0; r < rows; ++r) {
    if (targets[r] < 0 || groups[r] < 0 || groups[r] >= count) continue;
    const double lse = static_cast<double>(gmax[r]) + std::log(static_cast<double>(scaled[r]));
    double* const sum = sums + 2 * groups[r];
    sum[0] += lse - static_cast<double>(hit[r]) + op.real("z") * lse * lse;
    sum[1] += 1;
  }
}

Kernel select(const OpShape& shape) {
  const ShapeOf<ops::LmHeadGroups> s(shape);
  if (!same_type(s, {"gmax", "scaled", "hit"}) || !same_type(s, {"targets", "groups"})) return nullptr;
  return choose_state(s["gmax"].dtype, []<class C>() -> Kernel { return lm_head_groups<C>; });
}

}  // namespace

std::vector<KernelDef> lm_head_groups_kernels() { return {{ops::LmHeadGroups::kind, select}}; }

}  // namespace prun::cpu::PRUN_ISA
