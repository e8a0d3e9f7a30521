#include "simulate/exchange_prices.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "simulate/no_figure.hpp"

namespace prun {
namespace {

double rounds(std::int64_t members) {
  return std::max(1.0, static_cast<double>(std::bit_width(static_cast<std::uint64_t>(members - 1))));
}

// Rescales a measurement among `from` members to `to`: latency grows with the rounds, the rest with the share
// of the bytes that travels.
double rescale(const ExchangeCurve& curve, std::int64_t bytes, CommKind kind, std::int64_t from,
               std::int64_t to) {
  const double latency = curve.points.front().seconds;
  const double moving = std::max(0.0, curve.seconds(bytes) - latency);
  const auto share = [](std::int64_t n) { return static_cast<double>(n - 1) / static_cast<double>(n); };
  const bool spreads = kind != CommKind::broadcast && kind != CommKind::send;
  return latency * rounds(to) / rounds(from) + moving * (spreads ? share(to) / share(from) : 1);
}

// Returns what an exchange takes by links: an all-reduce passes each link twice.
double seconds_by(const LinkRates& links, const ExactExchange& exchange) {
  const auto members = static_cast<double>(exchange.members);
  const bool whole = exchange.kind == CommKind::send || exchange.kind == CommKind::broadcast;
  const double passes = exchange.kind == CommKind::all_reduce ? 2 : 1;
  const double share = whole ? 1 : passes * (members - 1) / members;
  return links.latency * rounds(exchange.members) * passes +
         share * static_cast<double>(exchange.bytes) / links.bytes_per_second;
}

}  // namespace

double ExchangePrices::seconds(const PlannedExchange& exchange, std::int64_t members, std::string_view queue,
                               UsedRates& rates) {
  if (members <= 1) return 0;
  const ExactExchange exact = exact_exchange(exchange, members, device_, queue);
  const auto measured = table_.exact_exchanges.find(exact);
  if (measured != table_.exact_exchanges.end()) return measured->second.seconds;
  some_alone_ = true;
  std::optional<double> found;
  if (!table_.has_exchanges_of(device_)) found = by_links(exact, false, rates);
  if (!found) found = alone(exact.kind, exact.bytes, exact.members, false);
  if (!found)
    throw NoFigure("the cost table has nothing on ", name_of(exact.kind), "; prun bench comm --ranks ",
                   members, " measures it");
  return *found;
}

double ExchangePrices::between_hosts(const PlannedExchange& exchange, std::int64_t members,
                                     std::string_view queue, UsedRates& rates) {
  if (members <= 1) return 0;
  const ExactExchange exact = exact_exchange(exchange, members, device_, queue);
  if (!table_.has_exchanges_of(device_, true))
    if (const std::optional<double> far = by_links(exact, true, rates)) return *far;
  if (const std::optional<double> far = alone(exact.kind, exact.bytes, exact.members, true)) {
    some_alone_ = true;
    return *far;
  }
  far_as_near_ = true;
  return seconds(exchange, members, queue, rates);
}

double ExchangePrices::fixed(const PlannedExchange& exchange, std::int64_t members, UsedRates& rates) {
  if (members <= 1) return 0;
  ExactExchange exact = exact_exchange(exchange, members, device_, {});
  exact.bytes = 0;
  if (!table_.has_exchanges_of(device_))
    if (const std::optional<double> near = by_links(exact, false, rates)) return *near;
  return alone(exact.kind, 0, exact.members, false).value_or(0);
}

double ExchangePrices::lateness(const PlannedExchange& exchange, std::int64_t members,
                                std::string_view queue) const {
  const auto found = table_.exact_exchanges.find(exact_exchange(exchange, members, device_, queue));
  return found == table_.exact_exchanges.end() ? 0 : found->second.lateness;
}

// Prices an exchange with nothing beside it, on a host or between hosts; returns nothing if that was not
// measured among any number of ranks.
std::optional<double> ExchangePrices::alone(CommKind kind, std::int64_t bytes, std::int64_t members,
                                            bool far) {
  const std::string device = table_.has_exchanges_of(device_, far) ? device_ : host_exchanges;
  const auto curve = table_.exchanges.find({kind, members, device, far});
  if (curve != table_.exchanges.end()) return curve->second.seconds(bytes);
  const std::pair<const ExchangeKey, ExchangeCurve>* nearest = nullptr;
  for (const auto& entry : table_.exchanges)
    if (entry.first.kind == kind && entry.first.device == device && entry.first.between_hosts == far &&
        (!nearest || std::abs(entry.first.members - members) < std::abs(nearest->first.members - members)))
      nearest = &entry;
  if (!nearest) return {};
  other_sizes_[detail::concat(name_of(kind), " among ", members, far ? " on several hosts" : "")] =
      detail::concat(nearest->first.members, " ranks");
  return rescale(nearest->second, bytes, kind, nearest->first.members, members);
}

std::optional<double> ExchangePrices::by_links(const ExactExchange& exchange, bool far,
                                               UsedRates& rates) const {
  const DeviceRates* const of_device = rates.use(device_);
  if (!of_device) return {};
  const LinkRates& links = far ? of_device->between : of_device->within;
  if (links.bytes_per_second <= 0) return {};
  return seconds_by(links, exchange);
}

}  // namespace prun
