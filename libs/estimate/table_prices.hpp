// Prices kernels, exchanges and copies by a cost table.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "estimate/costs.hpp"

namespace prun {

// ------------------------------------------------------------ used rates

// Remembers which devices' rates, none of them measured on this machine, are part of a prediction.
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

// ------------------------------------------------------------ exchange prices

// Prices exchanges between the ranks of a device by a cost table: as they were measured in this layout, or
// with nothing beside them among as many ranks or others, or by the rates of links. Throws NoFigure where
// nothing tells.
class ExchangePrices {
 public:
  ExchangePrices(const CostTable& table, std::string device) : table_(table), device_(std::move(device)) {}

  double seconds(const PlannedExchange& exchange, std::int64_t members, std::string_view queue,
                 UsedRates& rates);
  // Prices an exchange between hosts, where that is unknown, like one on a host.
  double between_hosts(const PlannedExchange& exchange, std::int64_t members, std::string_view queue,
                       UsedRates& rates);
  // Returns a fixed time, no more than the smallest measured exchanges took.
  double fixed(const PlannedExchange& exchange, std::int64_t members, UsedRates& rates);
  double lateness(const PlannedExchange& exchange, std::int64_t members, std::string_view queue) const;

  // Says whether some exchange's price is that of one with nothing beside it.
  bool some_alone() const { return some_alone_; }
  // Says whether some exchange between hosts has the price of one on a host.
  bool far_as_near() const { return far_as_near_; }
  // Returns what was worked out from a measurement among other ranks: from how many, by exchange.
  const std::map<std::string, std::string>& other_sizes() const { return other_sizes_; }

 private:
  std::optional<double> alone(CommKind kind, std::int64_t bytes, std::int64_t members, bool far);
  std::optional<double> by_links(const ExactExchange& exchange, bool far, UsedRates& rates) const;

  const CostTable& table_;
  std::string device_;
  bool some_alone_ = false, far_as_near_ = false;
  std::map<std::string, std::string> other_sizes_;
};

// ------------------------------------------------------------ middle kernels

// Prices a kernel whose op was not measured as its device does most: with the middle rate of FLOPs, and that
// of bytes, of all ops that were.
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

// Prices by a table, for the devices of a rank: exchanges and calls are the first's. A kernel that is not in
// the table is priced like what was measured on its device, if that is enough to tell; otherwise NoFigure is
// thrown, as it is for exchanges. `on_host` says by device whether its memory is the host's; if it is empty,
// neither links nor that memory delay any work.
class TablePrices final : public Prices {
 public:
  TablePrices(const CostTable& table, Numbered<std::string> devices, Numbered<bool> on_host = {})
      : table_(table),
        devices_(std::move(devices)),
        on_host_(std::move(on_host)),
        middles_(table),
        exchanges_(table, devices_.front()),
        rates_(table) {
    for (const std::string& device : devices_) has_kernels_.push_back(table.has_kernels_of(device));
  }

  double kernel(const Program& program, const PlannedStep& step) override;
  double exchange(const PlannedExchange& exchange, std::int64_t members, std::string_view queue) override {
    return exchanges_.seconds(exchange, members, queue, rates_);
  }
  double far_exchange(const PlannedExchange& exchange, std::int64_t members,
                      std::string_view queue) override {
    return exchanges_.between_hosts(exchange, members, queue, rates_);
  }
  double fixed(const PlannedExchange& exchange, std::int64_t members) override {
    return exchanges_.fixed(exchange, members, rates_);
  }
  double lateness(const PlannedExchange& exchange, std::int64_t members, std::string_view queue) override {
    return exchanges_.lateness(exchange, members, queue);
  }
  double share_beside_exchanges() override;
  Overheads overheads() override;
  Carried carried(const Program& program, const Plan& plan, const PlannedStep& step) override;
  double host_bandwidth() override;
  double drive_bandwidth() override;

  // Says whether some exchange's price is that of one with nothing beside it.
  bool exchanges_alone() const { return exchanges_.some_alone(); }

  // Returns from how many times the predicted time to how many a step may take, if rates that were not
  // measured here are part of it.
  std::optional<std::pair<double, double>> range() const { return rates_.range(); }

  // Returns in words what was not measured as it is but computed from similar measurements.
  std::vector<std::string> notes() const;

 private:
  std::optional<double> by_rates(const std::string& device, const Program& program, const PlannedStep& step,
                                 const OpShape& shape);
  bool is_beside(std::int32_t device) const;
  std::string host_text(const DeviceRates& rates) const;
  double drive_bytes(const Program& program, const PlannedStep& step) const;
  const DriveRates* stated_drives_of(std::int32_t device) const;
  std::optional<double> by_stated_drives(const Program& program, const PlannedStep& step) const;

  const CostTable& table_;
  Numbered<std::string> devices_;
  Numbered<bool> on_host_, has_kernels_;
  std::int64_t measured_ = 0, fitted_ = 0;
  std::int64_t by_rates_ = 0;
  bool on_drives_ = false;  // whether a drive's rate was used
  MiddleKernels middles_;
  ExchangePrices exchanges_;
  UsedRates rates_;
};

}  // namespace prun
