// Prices kernels, exchanges and copies by a cost table.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "simulate/costs.hpp"
#include "simulate/exchange_prices.hpp"
#include "simulate/middle_kernels.hpp"
#include "simulate/used_rates.hpp"

namespace prun {

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
