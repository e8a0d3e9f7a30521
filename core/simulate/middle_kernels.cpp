#include "simulate/middle_kernels.hpp"

#include <vector>

#include "base/median.hpp"
#include "program/fp8_products.hpp"

namespace prun {

std::optional<double> MiddleKernels::seconds(const KernelKey& key, const OpDef& op, const OpShape& shape,
                                             const OpCost& cost) {
  if (multiplies_in_fp8(op, shape)) return {};
  const std::optional<KernelFit>& middle = middle_of(key.device, key.type);
  if (!middle) return {};
  ++priced_;
  ops_.insert(key.op);
  return middle->seconds(cost);
}

// Returns the fit of a device's kernels in a type; nothing if too few were measured.
const std::optional<KernelFit>& MiddleKernels::middle_of(const std::string& device, DType type) {
  const auto [entry, is_new] = middles_.try_emplace({device, type});
  if (!is_new) return entry->second;
  std::vector<double> fixed, per_flop, per_byte;
  for (const auto& [key, fit] : table_.kernels) {
    if (key.device != device || (is_float(type) && key.type != type)) continue;
    fixed.push_back(fit.fixed);
    // Bytes of what counts FLOPs as well may be those of caches.
    if (fit.per_flop > 0)
      per_flop.push_back(fit.per_flop);
    else
      per_byte.push_back(fit.per_byte);
  }
  constexpr std::size_t enough = 4;
  if (per_flop.size() >= enough && per_byte.size() >= enough)
    entry->second = KernelFit{median(fixed), median(per_flop), median(per_byte)};
  return entry->second;
}

}  // namespace prun
