// Prices a kernel whose op was not measured as its device does most: with the middle rate of FLOPs, and that
// of bytes, of all ops that were.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "simulate/costs.hpp"

namespace prun {

class MiddleKernels {
 public:
  explicit MiddleKernels(const CostTable& table) : table_(table) {}

  // Returns nothing if too few ops were measured to tell, or the op multiplies in fp8: such products are like
  // no others.
  std::optional<double> seconds(const KernelKey& key, const OpDef& op, const OpShape& shape,
                                const OpCost& cost);

  // Returns the ops that have been priced so, and how often.
  const std::set<std::string>& ops() const { return ops_; }
  std::int64_t priced() const { return priced_; }

 private:
  const std::optional<KernelFit>& middle_of(const std::string& device, DType type);

  const CostTable& table_;
  std::map<std::pair<std::string, DType>, std::optional<KernelFit>> middles_;
  std::set<std::string> ops_;
  std::int64_t priced_ = 0;
};

}  // namespace prun
