#include "simulate/costs.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <sstream>

#include "plan/moved_bytes.hpp"
#include "program/fp8_products.hpp"

namespace prun {
namespace {

// ---------------------------------------------------------------- fitting

constexpr std::size_t terms = 3;
using Row = std::array<double, terms>;

// Solves the least squares of rows x = 1 over some of the terms; returns nothing if the rows do not determine
// them.
std::optional<Row> solve(const std::vector<Row>& rows, unsigned chosen) {
  std::vector<std::size_t> used;
  for (std::size_t i = 0; i < terms; ++i)
    if (chosen >> i & 1u) used.push_back(i);
  const std::size_t n = used.size();
  double m[terms][terms + 1] = {};
  for (const Row& row : rows)
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) m[i][j] += row[used[i]] * row[used[j]];
      m[i][n] += row[used[i]];
    }
  Row diagonal{};
  for (std::size_t i = 0; i < n; ++i) diagonal[i] = m[i][i];
  for (std::size_t i = 0; i < n; ++i) {
    if (m[i][i] <= 1e-9 * diagonal[i]) return {};
    for (std::size_t below = i + 1; below < n; ++below) {
      const double factor = m[below][i] / m[i][i];
      for (std::size_t j = i; j <= n; ++j) m[below][j] -= factor * m[i][j];
    }
  }
  Row x{};
  for (std::size_t i = n; i-- > 0;) {
    double value = m[i][n];
    for (std::size_t j = i + 1; j < n; ++j) value -= m[i][j] * x[used[j]];
    x[used[i]] = value / m[i][i];
  }
  return x;
}

double squared_error(const std::vector<Row>& rows, const Row& x) {
  double sum = 0;
  for (const Row& row : rows) {
    const double off = row[0] * x[0] + row[1] * x[1] + row[2] * x[2] - 1;
    sum += off * off;
  }
  return sum;
}

bool any_negative(const Row& x) {
  return std::any_of(x.begin(), x.end(), [](double v) { return v < 0; });
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

}  // namespace

KernelFit fit_kernel(std::span<const KernelSample> samples) {
  Row scale = {1, 1, 1};
  for (const KernelSample& sample : samples) {
    scale[1] = std::max(scale[1], sample.cost.flops);
    scale[2] = std::max(scale[2], sample.cost.bytes);
  }
  std::vector<Row> rows;
  for (const KernelSample& sample : samples)
    if (sample.seconds > 0)
      rows.push_back({1 / sample.seconds, sample.cost.flops / scale[1] / sample.seconds,
                      sample.cost.bytes / scale[2] / sample.seconds});
  Row best{};
  double least = std::numeric_limits<double>::infinity();
  // Fewer terms are tried first: more must be better by more than rounding.
  for (const unsigned chosen : {0b100u, 0b010u, 0b001u, 0b110u, 0b101u, 0b011u, 0b111u}) {
    const std::optional<Row> x = solve(rows, chosen);
    if (!x || any_negative(*x)) continue;
    const double error = squared_error(rows, *x);
    if (error + 1e-12 >= least) continue;
    least = error;
    best = *x;
  }
  return {best[0], best[1] / scale[1], best[2] / scale[2]};
}

DType element_type(const OpShape& shape) {
  for (int i = 0; i < shape.count; ++i) {
    const DType type = shape.operand[i].dtype;
    if (shape.operand[i].present && is_float(type)) return type;
  }
  return shape.operand[0].dtype;
}

namespace {

// Returns an attribute, or 0 if the op has none of that name.
std::int64_t integer_attr(const OpDef& op, const OpShape& shape, std::string_view name) {
  for (std::uint64_t i = 0; i < op.attr_count; ++i)
    if (op.attrs[i].name == name) return shape.attrs[i].i;
  return 0;
}

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

}  // namespace

bool multiplies_in_fp8(const OpDef& op, const OpShape& shape) {
  return op.in_blocks && integer_attr(op, shape, "fp8") != 0;
}

std::string kernel_name(const OpDef& op, const OpShape& shape) {
  if (!multiplies_in_fp8(op, shape)) return op.kind;
  const bool all = integer_attr(op, shape, "fp8_from") == 0 && integer_attr(op, shape, "fp8_until") == 0;
  return detail::concat(op.kind, all ? " in fp8" : " partly in fp8");
}

std::string shape_key(const OpDef& op, const OpShape& shape) {
  std::ostringstream text;
  text << op.kind << '(';
  for (int i = 0; i < shape.count; ++i) {
    const OperandShape& operand = shape.operand[i];
    if (i) text << ", ";
    if (!operand.present) {
      text << '-';
      continue;
    }
    text << name_of(operand.dtype) << '[';
    for (int d = 0; d < operand.rank; ++d) text << (d ? "," : "") << operand.dims[d].extent;
    text << ']';
  }
  text << ')';
  for (std::uint64_t i = 0; i < op.attr_count; ++i) {
    const AttrDef& attr = op.attrs[i];
    if (!attr.later || attr.says_nothing(shape.attrs[i])) continue;
    text << ", " << attr.name << '=';
    attr.real ? text << shape.attrs[i].f : text << shape.attrs[i].i;
  }
  return text.str();
}

double ExchangeCurve::seconds(std::int64_t bytes) const {
  if (points.size() == 1 || bytes <= points.front().bytes) return points.front().seconds;
  std::size_t right = 1;
  while (right + 1 < points.size() && points[right].bytes < bytes) ++right;
  const ExchangePoint &a = points[right - 1], &b = points[right];
  const double slope = (b.seconds - a.seconds) / static_cast<double>(b.bytes - a.bytes);
  // Beyond the last point, more bytes never take less time.
  if (bytes > b.bytes) return b.seconds + std::max(0.0, slope) * static_cast<double>(bytes - b.bytes);
  return a.seconds + slope * static_cast<double>(bytes - a.bytes);
}

void CostTable::merge(const CostTable& newer) {
  machine = newer.machine;
  if (newer.host_gb_per_second) host_gb_per_second = newer.host_gb_per_second;
  rates.insert(rates.begin(), newer.rates.begin(), newer.rates.end());
  const auto take = [](auto& mine, const auto& theirs) {
    for (const auto& [key, value] : theirs) mine.insert_or_assign(key, value);
  };
  take(overheads, newer.overheads);
  take(kernels, newer.kernels);
  take(exact, newer.exact);
  take(exchanges, newer.exchanges);
  if (!newer.exact_exchanges.empty()) exact_exchanges = newer.exact_exchanges;
}

bool CostTable::has_kernels_of(std::string_view device) const {
  const auto is_of_it = [&](const auto& entry) { return entry.first.device == device; };
  return std::any_of(kernels.begin(), kernels.end(), is_of_it) ||
         std::any_of(exact.begin(), exact.end(), is_of_it);
}

const DeviceRates* CostTable::rates_of(std::string_view device) const {
  const auto found =
      std::find_if(rates.begin(), rates.end(), [&](const DeviceRates& one) { return one.is_of(device); });
  return found == rates.end() ? nullptr : &*found;
}

// Links carry what exchanges take beyond the least that any takes.
CostTable CostTable::with_links(double times) const {
  CostTable other = *this;
  const auto quicker = [times](double seconds, double fixed) { return fixed + (seconds - fixed) / times; };
  for (auto& [key, curve] : other.exchanges)
    for (ExchangePoint& point : curve.points)
      point.seconds = quicker(point.seconds, std::min(point.seconds, curve.points.front().seconds));
  for (auto& [key, time] : other.exact_exchanges) time.seconds /= times;
  for (DeviceRates& one : other.rates) {
    one.within.bytes_per_second *= times;
    one.between.bytes_per_second *= times;
  }
  return other;
}

namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool is_of_word(char c) { return (lower(c) >= 'a' && lower(c) <= 'z') || (c >= '0' && c <= '9'); }

// Says whether a text has a word, in letters of either case: "GH200" has no word h200.
bool has_word(std::string_view text, std::string_view word) {
  const auto same = [](char a, char b) { return lower(a) == lower(b); };
  for (auto at = text.begin();; ++at) {
    at = std::search(at, text.end(), word.begin(), word.end(), same);
    if (at == text.end()) return false;
    const auto behind = at + std::ssize(word);
    if ((at == text.begin() || !is_of_word(at[-1])) && (behind == text.end() || !is_of_word(*behind)))
      return true;
  }
}

}  // namespace

bool DeviceRates::is_of(std::string_view name) const {
  return name.find(device) != std::string_view::npos || (!short_name.empty() && has_word(name, short_name));
}

double DeviceRates::seconds(const OpCost& cost, DType type) const {
  double rate = 0;
  if (const auto own = flops_per_second.find(type); own != flops_per_second.end())
    rate = own->second;
  else
    for (const auto& [other, flops] : flops_per_second) rate = rate > 0 ? std::min(rate, flops) : flops;
  return fixed +
         std::max(rate > 0 ? cost.flops / rate : 0, bytes_per_second > 0 ? cost.bytes / bytes_per_second : 0);
}

// Codes have half the bytes of the narrowest type that computes, so a cast moves half as much again.
std::optional<double> DeviceRates::seconds_in_fp8(const OpDef& op, const OpShape& shape,
                                                  const OpCost& cost) const {
  if (!fp8_flops_per_second || bytes_per_second <= 0) return {};
  double factors = 0;  // counted in bytes
  for (int i = 0; i < shape.count && i < 2; ++i)
    if (op.operands[i].access == Access::read) factors += static_cast<double>(shape.operand[i].bytes());
  return fixed + std::max(cost.flops / *fp8_flops_per_second, cost.bytes / bytes_per_second) +
         1.5 * factors / bytes_per_second;
}

bool CostTable::has_exchanges_of(std::string_view device) const {
  return std::any_of(exchanges.begin(), exchanges.end(),
                     [&](const auto& entry) { return entry.first.device == device; });
}

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
    if (fit == table_.kernels.end())
      if (const std::optional<double> seconds = by_rates(device, program, step, of)) return *seconds;
    if (fit == table_.kernels.end())
      throw_error(ErrorCode::not_found, "the cost table has nothing on op '", name, "' in ", name_of(type),
                  " on '", device, "'; prun bench kernels RECIPE measures it");
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

ExactExchange exact_exchange(const PlannedExchange& exchange, std::int64_t members, std::string device,
                             std::string_view queue) {
  const bool between_two = exchange.kind == CommKind::send || exchange.kind == CommKind::recv;
  return {std::move(device), std::string(queue), between_two ? CommKind::send : exchange.kind,
          between_two ? 2 : members, exchange_bytes(exchange, members)};
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

// Prices an exchange by links: an all-reduce passes each link twice.
std::optional<double> TablePrices::by_links(const ExactExchange& exchange, bool far) {
  const DeviceRates* const rates = used(devices_.front());
  if (!rates) return {};
  const LinkRates& links = far ? rates->between : rates->within;
  if (links.bytes_per_second <= 0) return {};
  const auto members = static_cast<double>(exchange.members);
  const bool whole = exchange.kind == CommKind::send || exchange.kind == CommKind::broadcast;
  const double passes = exchange.kind == CommKind::all_reduce ? 2 : 1;
  const double share = whole ? 1 : passes * (members - 1) / members;
  return links.latency * rounds(exchange.members) * passes +
         share * static_cast<double>(exchange.bytes) / links.bytes_per_second;
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
  if (carried.link >= 0) carried.link_bytes = static_cast<double>(step.operands.front().address.bytes);
  return carried;
}

std::vector<std::string> TablePrices::notes() const {
  std::vector<std::string> notes;
  if (fitted_)
    notes.push_back(
        detail::concat(fitted_, " of ", fitted_ + measured_,
                       " kernels by formula; prun bench kernels RECIPE measures them as they are"));
  for (const DeviceRates* rates : used_)
    notes.push_back(detail::concat(
        by_rates_, " kernels of ", by_rates_ + fitted_ + measured_, " and links by ", rates->source,
        ", none of it measured on this machine: prun bench kernels RECIPE and prun bench comm measure"));
  for (const auto& [what, from] : other_sizes_) notes.push_back(what + " worked out from " + from);
  return notes;
}

}  // namespace prun
