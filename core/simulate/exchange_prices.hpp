// Prices exchanges between the ranks of a device by a cost table: as they were measured in this layout, or
// with nothing beside them among as many ranks or others, or by the rates of links. Throws NoFigure where
// nothing tells.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "simulate/costs.hpp"
#include "simulate/used_rates.hpp"

namespace prun {

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

}  // namespace prun
