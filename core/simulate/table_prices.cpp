#include "simulate/table_prices.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/text.hpp"
#include "plan/moved_bytes.hpp"
#include "program/fp8_products.hpp"

namespace prun {
namespace {

// Returns the attributes of an op that multiplies in fp8 in all layers, or in none.
std::vector<Attr> as_in_all_layers(const Op& op, bool in_fp8) {
  std::vector<Attr> attrs = op.attrs;
  for (std::size_t i = 0; i < attrs.size(); ++i) {
    const std::string_view name = op.def->attrs[i].name;
    if (name == "fp8") attrs[i].i = in_fp8 ? 1 : 0;
    if (name == "fp8_from" || name == "fp8_until") attrs[i].i = 0;
  }
  return attrs;
}

// ---------------------------------------------------------------- exchanges

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

double TablePrices::kernel(const Program& program, const PlannedStep& step) {
  const Op& op = program.op(step.op);
  const OpShape shape = program.local_shape(op);
  const std::string& device = devices_.at(step.device);
  const auto exact = table_.exact.find({device, shape_key(*op.def, shape)});
  if (exact != table_.exact.end()) {
    ++measured_;
    return exact->second;
  }
  const auto other = [&](const OpShape& of) {
    const DType type = element_type(of);
    const std::string name = kernel_name(*op.def, of);
    const auto fit = table_.kernels.find({name, type, device});
    if (fit == table_.kernels.end()) {
      if (const std::optional<double> seconds = by_rates(device, program, step, of)) return *seconds;
      if (const std::optional<double> seconds =
              middles_.seconds({name, type, device}, *op.def, of, op.cost(of)))
        return *seconds;
      throw_error(ErrorCode::not_found, "the cost table has nothing on op '", name, "' in ", name_of(type),
                  " on '", device, "'; prun bench kernels RECIPE measures it");
    }
    ++fitted_;
    return fit->second.seconds(op.cost(of));
  };
  const double narrow = layers_in_fp8(program, step.op);
  if (narrow == 0 || narrow == 1) return other(shape);
  double seconds = 0;
  for (const bool in_fp8 : {true, false}) {
    const std::vector<Attr> attrs = as_in_all_layers(op, in_fp8);
    OpShape all_layers = shape;
    all_layers.attrs = attrs.data();
    seconds += (in_fp8 ? narrow : 1 - narrow) * other(all_layers);
  }
  return seconds;
}

double TablePrices::lateness(const PlannedExchange& exchange, std::int64_t members, std::string_view queue) {
  const auto found = table_.exact_exchanges.find(exact_exchange(exchange, members, devices_.front(), queue));
  return found == table_.exact_exchanges.end() ? 0 : found->second.lateness;
}

double TablePrices::exchange(const PlannedExchange& exchange, std::int64_t members, std::string_view queue) {
  if (members <= 1) return 0;
  const ExactExchange exact = exact_exchange(exchange, members, devices_.front(), queue);
  const auto measured = table_.exact_exchanges.find(exact);
  if (measured != table_.exact_exchanges.end()) return measured->second.seconds;
  exchanges_alone_ = true;
  std::optional<double> seconds;
  if (!table_.has_exchanges_of(devices_.front())) seconds = by_links(exact, false);
  if (!seconds) seconds = alone(exact.kind, exact.bytes, exact.members);
  if (!seconds)
    throw_error(ErrorCode::not_found, "the cost table has nothing on ", name_of(exact.kind),
                "; prun bench comm --ranks ", members, " measures it");
  return *seconds;
}

// Prices an exchange between hosts, where that is unknown, like one on a host.
double TablePrices::far_exchange(const PlannedExchange& planned, std::int64_t members,
                                 std::string_view queue) {
  if (members <= 1) return 0;
  const ExactExchange exact = exact_exchange(planned, members, devices_.front(), queue);
  if (const std::optional<double> seconds = by_links(exact, true)) return *seconds;
  return exchange(planned, members, queue);
}

// Returns a fixed time, no more than the smallest measured exchanges took.
double TablePrices::fixed(const PlannedExchange& exchange, std::int64_t members) {
  if (members <= 1) return 0;
  ExactExchange exact = exact_exchange(exchange, members, devices_.front(), {});
  exact.bytes = 0;
  if (!table_.has_exchanges_of(devices_.front()))
    if (const std::optional<double> seconds = by_links(exact, false)) return *seconds;
  return alone(exact.kind, 0, exact.members).value_or(0);
}

// Prices an exchange with nothing beside it; returns nothing if that was not measured among any number of
// ranks.
std::optional<double> TablePrices::alone(CommKind kind, std::int64_t bytes, std::int64_t members) {
  const std::string device = table_.has_exchanges_of(devices_.front()) ? devices_.front() : host_exchanges;
  const auto curve = table_.exchanges.find({kind, members, device});
  if (curve != table_.exchanges.end()) return curve->second.seconds(bytes);
  const std::pair<const ExchangeKey, ExchangeCurve>* nearest = nullptr;
  for (const auto& entry : table_.exchanges)
    if (entry.first.kind == kind && entry.first.device == device &&
        (!nearest || std::abs(entry.first.members - members) < std::abs(nearest->first.members - members)))
      nearest = &entry;
  if (!nearest) return {};
  other_sizes_[detail::concat(name_of(kind), " among ", members)] =
      detail::concat(nearest->first.members, " ranks");
  return rescale(nearest->second, bytes, kind, nearest->first.members, members);
}

// Prices a step by rates. Their link limits what moves between the device and host memory. For devices beside
// it that have no rates of their own, the first one's say what its host does.
std::optional<double> TablePrices::by_rates(const std::string& device, const Program& program,
                                            const PlannedStep& step, const OpShape& shape) {
  const Op& op = program.op(step.op);
  OpCost cost = op.cost(shape);
  const bool beside = step.device > 0 && !table_.rates_of(device);
  const DeviceRates* const rates = used(beside ? devices_.front() : device);
  if (!rates) return {};
  if (beside) {
    const std::optional<double>& rate =
        op.def->copies ? rates->drive_bytes_per_second : rates->host_memory_bytes_per_second;
    if (!rate) return {};
    ++by_rates_;
    return rates->fixed + cost.bytes / *rate;
  }
  ++by_rates_;
  const bool moves = op.def->copies && !step.operands.empty() &&
                     step.operands.front().address.range != step.operands.back().address.range;
  if (moves && rates->host_bytes_per_second)
    return rates->fixed +
           static_cast<double>(step.operands.front().address.bytes) / *rates->host_bytes_per_second;
  if (const auto share = rates->share_of.find(op.kind()); share != rates->share_of.end())
    cost.flops /= share->second;
  if (!multiplies_in_fp8(*op.def, shape)) return rates->seconds(cost, element_type(shape));
  const std::optional<double> seconds = rates->seconds_in_fp8(*op.def, shape, cost);
  if (!seconds)
    throw_error(ErrorCode::not_found, "nobody knows what products in fp8 take on '", device, "' (",
                rates->source, "); prun bench kernels RECIPE measures it");
  return seconds;
}

std::optional<double> TablePrices::by_links(const ExactExchange& exchange, bool far) {
  const DeviceRates* const rates = used(devices_.front());
  if (!rates) return {};
  const LinkRates& links = far ? rates->between : rates->within;
  if (links.bytes_per_second <= 0) return {};
  return seconds_by(links, exchange);
}

const DeviceRates* TablePrices::used(std::string_view device) {
  const DeviceRates* const rates = table_.rates_of(device);
  if (rates && std::find(used_.begin(), used_.end(), rates) == used_.end()) used_.push_back(rates);
  return rates;
}

std::optional<std::pair<double, double>> TablePrices::range() const {
  std::optional<std::pair<double, double>> range;
  for (const DeviceRates* rates : used_) {
    if (!range) range.emplace(1, 1);
    range->first = std::min(range->first, rates->least);
    range->second = std::max(range->second, rates->most);
  }
  return range;
}

double TablePrices::share_beside_exchanges() {
  const DeviceRates* const rates = table_.rates_of(devices_.front());
  return rates ? rates->beside_exchanges.value_or(1) : 1;
}

// Returns what was measured, or what the first device's host is said to have; 0 where neither is known.
double TablePrices::host_bandwidth() {
  if (table_.host_gb_per_second) return *table_.host_gb_per_second * 1e9;
  const DeviceRates* const rates = table_.rates_of(devices_.front());
  return rates ? rates->host_memory_bytes_per_second.value_or(0) : 0;
}

Overheads TablePrices::overheads() {
  const auto found = table_.overheads.find(devices_.front());
  return found == table_.overheads.end() ? Overheads{} : found->second;
}

// Returns the carried bytes: between a device whose memory is the host's and that memory there is no link.
Carried TablePrices::carried(const Program& program, const Plan& plan, const PlannedStep& step) {
  if (on_host_.empty() || !step.kernel) return {};
  Carried carried;
  carried.host = host_bytes(program, plan, step, on_host_);
  carried.link = link_of(program, plan, step);
  if (carried.link >= 0 && on_host_.at(carried.link / 2)) carried.link = -1;
  if (carried.link >= 0) carried.link_bytes = step.operands.front().address.bytes;
  return carried;
}

std::vector<std::string> TablePrices::notes() const {
  std::vector<std::string> notes;
  if (fitted_)
    notes.push_back(
        detail::concat(fitted_, " of ", fitted_ + measured_,
                       " kernels by formula; prun bench kernels RECIPE measures them as they are"));
  if (!middles_.ops().empty())
    notes.push_back(
        detail::concat(middles_.priced(), " kernels of ops that were not measured (",
                       join(std::vector<std::string>(middles_.ops().begin(), middles_.ops().end()), ", "),
                       "), like others in the middle; prun bench kernels RECIPE measures them"));
  for (const DeviceRates* rates : used_)
    notes.push_back(detail::concat(
        by_rates_, " kernels of ", by_rates_ + fitted_ + measured_, " and links by ", rates->source,
        ", none of it measured on this machine: prun bench kernels RECIPE and prun bench comm measure"));
  for (const auto& [what, from] : other_sizes_)
    notes.push_back(detail::concat(what, " worked out from ", from));
  return notes;
}

}  // namespace prun
