// Answers a simulation's questions from a cost table, taking the best figure there is: the exact shape, then
// the fit of the op, then the median of other ops, then rates. It records what was not measured, so that a
// prediction can state it. Example: `linear` of an unseen shape uses the fit of `linear`; an all-gather among
// 4 ranks, measured among 2, is rescaled and noted.
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
#include "prun/error.hpp"

namespace prun {

// ------------------------------------------------------------------- table cost model

// ------------------------------------------------------------ used rates

// Records which devices' rates, none measured on this machine, a prediction uses.
class UsedRates {
 public:
  explicit UsedRates(const CostTable& table) : table_(table) {}

  // Returns the rates of a device and records the use; null if it has none.
  const DeviceRates* use(std::string_view device) {
    const DeviceRates* const rates = table_.rates_of(device);
    if (rates && std::find(used_.begin(), used_.end(), rates) == used_.end()) used_.push_back(rates);
    return rates;
  }
  const std::vector<const DeviceRates*>& used() const { return used_; }

  // Returns the widest range of the rates used, as factors of the prediction; nothing if none is used.
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

// ------------------------------------------------------------ costs of collectives

// Times of collectives: as measured in this layout; else without concurrent kernels among as many ranks, or
// other numbers; else by link rates. Throws NoFigure if none is known.
class ExchangeCosts {
 public:
  ExchangeCosts(const CostTable& table, std::string device) : table_(table), device_(std::move(device)) {}

  double seconds(const PlannedExchange& exchange, std::int64_t members, std::string_view queue,
                 UsedRates& rates);
  // Estimates it as on a host if unknown.
  double between_hosts(const PlannedExchange& exchange, std::int64_t members, std::string_view queue,
                       UsedRates& rates);
  // Returns the part that does not depend on bytes, at most the smallest measured time.
  double fixed(const PlannedExchange& exchange, std::int64_t members, UsedRates& rates);
  double lateness(const PlannedExchange& exchange, std::int64_t members, std::string_view queue) const;

  // Returns true if a time without concurrent kernels was used.
  bool some_alone() const { return some_alone_; }
  // Returns true if a time on one host was used between hosts.
  bool far_as_near() const { return far_as_near_; }
  // Returns which sizes were rescaled from how many ranks, by collective.
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

// Estimates ops that were not measured by the median rate of FLOPs and of bytes of all measured ops of the
// device.
class MiddleKernels {
 public:
  explicit MiddleKernels(const CostTable& table) : table_(table) {}

  // Returns nothing if too few ops were measured, or for products in fp8, which no other op resembles.
  std::optional<double> seconds(const KernelKey& key, const OpDef& op, const OpShape& shape,
                                const OpCost& cost);

  // Returns how many ops were estimated this way.
  const std::set<std::string>& ops() const { return ops_; }
  std::int64_t estimated() const { return estimated_; }

 private:
  const std::optional<KernelFit>& middle_of(const std::string& device, DType type);

  const CostTable& table_;
  std::map<std::pair<std::string, DType>, std::optional<KernelFit>> middles_;
  std::set<std::string> ops_;
  std::int64_t estimated_ = 0;
};

// The cost model for the devices of a rank; collectives and overheads are those of the first. Throws NoFigure
// if nothing similar was measured. `on_host`: by device, whether its memory is the host's; if empty, links
// and host memory are not shared.
class TableCostModel final : public CostModel {
 public:
  TableCostModel(const CostTable& table, Numbered<std::string> devices, Numbered<bool> on_host = {})
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

  // Returns true if a time without concurrent kernels was used.
  bool exchanges_alone() const { return exchanges_.some_alone(); }

  // Returns the range of the step's time, as factors, if rates are used.
  std::optional<std::pair<double, double>> range() const { return rates_.range(); }

  // States what was computed from similar measurements.
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
  bool on_drives_ = false;  // a drive's rate was used
  MiddleKernels middles_;
  ExchangeCosts exchanges_;
  UsedRates rates_;
};

// ------------------------------------------------------------------- no figure
// Separates "the cost table lacks a figure" from other errors: such a recipe can run, it just has no
// prediction.

class NoFigure : public Error {
 public:
  template <class... Parts>
  explicit NoFigure(const Parts&... parts) : Error(ErrorCode::not_found, detail::concat(parts...)) {}
};

}  // namespace prun
