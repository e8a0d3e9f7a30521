// Remembers which devices' rates, none of them measured on this machine, are part of a prediction.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "simulate/costs.hpp"

namespace prun {

class UsedRates {
 public:
  explicit UsedRates(const CostTable& table) : table_(table) {}

  // Returns the rates of a device, which count as used, or null.
  const DeviceRates* use(std::string_view device) {
    const DeviceRates* const rates = table_.rates_of(device);
    if (rates && std::find(used_.begin(), used_.end(), rates) == used_.end()) used_.push_back(rates);
    return rates;
  }
  const std::vector<const DeviceRates*>& used() const { return used_; }

  // Returns from how many times the predicted time to how many a step may take; nothing if none is used.
  std::optional<std::pair<double, double>> range() const {
    std::optional<std::pair<double, double>> range;
    for (const DeviceRates* rates : used_) {
      if (!range) range.emplace(1, 1);
      range->first = std::min(range->first, rates->least);
      range->second = std::max(range->second, rates->most);
    }
    return range;
  }

 private:
  const CostTable& table_;
  std::vector<const DeviceRates*> used_;
};

}  // namespace prun
