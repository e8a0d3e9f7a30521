#include "estimate/table_cost_model.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <vector>

#include "base/narrow.hpp"
#include "base/text.hpp"
#include "estimate/moved_bytes.hpp"

namespace prun {
namespace {

double rounds(std::int64_t members) {
  return std::max(1.0, static_cast<double>(std::bit_width(static_cast<std::uint64_t>(members - 1))));
}

// Rescales a measurement among `from` members to `to`: latency by rounds, the rest by the share of bytes that
// is sent.
double rescale(const ExchangeCurve& curve, std::int64_t bytes, CommKind kind, std::int64_t from,
               std::int64_t to) {
  const double latency = curve.points.front().seconds;
  const double moving = std::max(0.0, curve.seconds(bytes) - latency);
  const auto share = [](std::int64_t n) { return static_cast<double>(n - 1) / static_cast<double>(n); };
  const bool spreads = kind != CommKind::broadcast && kind != CommKind::send;
  return latency * rounds(to) / rounds(from) + moving * (spreads ? share(to) / share(from) : 1);
}

// Uses link rates. An all-reduce uses each link twice.
double seconds_by(const LinkRates& links, const ExactExchange& exchange) {
  const auto members = static_cast<double>(exchange.members);
  const bool whole = exchange.kind == CommKind::send || exchange.kind == CommKind::broadcast;
  const double passes = exchange.kind == CommKind::all_reduce ? 2 : 1;
  const double share = whole ? 1 : passes * (members - 1) / members;
  return links.latency * rounds(exchange.members) * passes +
         share * static_cast<double>(exchange.bytes) / links.bytes_per_second;
}

}  // namespace

double ExchangeCosts::seconds(const PlannedExchange& exchange, std::int64_t members, std::string_view queue,
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

double ExchangeCosts::between_hosts(const PlannedExchange& exchange, std::int64_t members,
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

double ExchangeCosts::fixed(const PlannedExchange& exchange, std::int64_t members, UsedRates& rates) {
  if (members <= 1) return 0;
  ExactExchange exact = exact_exchange(exchange, members, device_, {});
  exact.bytes = 0;
  if (!table_.has_exchanges_of(device_))
    if (const std::optional<double> near = by_links(exact, false, rates)) return *near;
  return alone(exact.kind, 0, exact.members, false).value_or(0);
}

double ExchangeCosts::lateness(const PlannedExchange& exchange, std::int64_t members,
                               std::string_view queue) const {
  const auto found = table_.exact_exchanges.find(exact_exchange(exchange, members, device_, queue));
  return found == table_.exact_exchanges.end() ? 0 : found->second.lateness;
}

// Returns the seconds without concurrent kernels; nothing if this kind was not measured among any number of
// ranks.
std::optional<double> ExchangeCosts::alone(CommKind kind, std::int64_t bytes, std::int64_t members,
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

std::optional<double> ExchangeCosts::by_links(const ExactExchange& exchange, bool far,
                                              UsedRates& rates) const {
  const DeviceRates* const of_device = rates.use(device_);
  if (!of_device) return {};
  const LinkRates& links = far ? of_device->between : of_device->within;
  if (links.bytes_per_second <= 0) return {};
  return seconds_by(links, exchange);
}

std::optional<double> MiddleKernels::seconds(const KernelKey& key, const OpDef& op, const OpShape& shape,
                                             const OpCost& cost) {
  if (multiplies_in_fp8(op, shape)) return {};
  const std::optional<KernelFit>& middle = middle_of(key.device, key.type);
  if (!middle) return {};
  ++estimated_;
  ops_.insert(key.op);
  return middle->seconds(cost);
}

// Returns the median fit of a device's kernels in a type; nothing if too few were measured.
const std::optional<KernelFit>& MiddleKernels::middle_of(const std::string& device, DType type) {
  const auto [entry, is_new] = middles_.try_emplace({device, type});
  if (!is_new) return entry->second;
  std::vector<double> fixed, per_flop, per_byte;
  for (const auto& [key, fit] : table_.kernels) {
    if (key.device != device || (is_float(type) && key.type != type)) continue;
    fixed.push_back(fit.fixed);
    // Bytes of ops with FLOPs may come from caches: leave them out.
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

namespace {

// Returns the attributes of an op that uses fp8 in all layers, or in none.
std::vector<Attr> as_in_all_layers(const Op& op, bool in_fp8) {
  std::vector<Attr> attrs = op.attrs;
  for (std::size_t i = 0; i < attrs.size(); ++i) {
    const std::string_view name = op.def->attrs[i].name;
    if (name == "fp8") attrs[i].i = in_fp8 ? 1 : 0;
    if (name == "fp8_from" || name == "fp8_until") attrs[i].i = 0;
  }
  return attrs;
}

std::string joined(const std::set<std::string>& names) {
  return join(std::vector<std::string>(names.begin(), names.end()), ", ");
}

// Describes what the table has instead of the device: kernels of others, such as with more threads, or rates.
std::string of_other_devices(const CostTable& table) {
  std::set<std::string> measured, rated;
  for (const auto& [key, fit] : table.kernels) measured.insert(key.device);
  for (const auto& [key, seconds] : table.exact) measured.insert(key.device);
  for (const DeviceRates& rates : table.rates) rated.insert(rates.device);
  if (!measured.empty()) return ", but on '" + joined(measured) + "'";
  if (rated.empty()) return {};
  return ", but rates of " + joined(rated) + ": a recipe can be planned for these (docs/tune.md)";
}

}  // namespace

double TableCostModel::kernel(const Program& program, const PlannedStep& step) {
  const Op& op = program.op(step.op);
  const OpShape shape = program.local_shape(op);
  if (const std::optional<double> seconds = by_stated_drives(program, step)) return *seconds;
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
      const bool knows = table_.has_kernels_of(device);
      const std::string op_text =
          knows ? detail::concat("op '", name, "' in ", name_of(type), " on ") : std::string();
      throw NoFigure("the cost table has nothing on ", op_text, "'", device, "'",
                     knows ? std::string() : of_other_devices(table_),
                     "; prun bench kernels RECIPE measures it");
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

const DriveRates* TableCostModel::stated_drives_of(std::int32_t device) const {
  const auto found = table_.stated_drives.find(devices_.at(device));
  return found == table_.stated_drives.end() ? nullptr : &found->second;
}

// Estimates copies to and from drives with rates from the recipe.
std::optional<double> TableCostModel::by_stated_drives(const Program& program,
                                                       const PlannedStep& step) const {
  const Op& op = program.op(step.op);
  const DriveRates* const drives = op.def->copies ? stated_drives_of(step.device) : nullptr;
  if (!drives) return {};
  const MemoryPlace from = program.value(op.operands.front()).place.value_or(MemoryPlace{});
  return static_cast<double>(step.operands.front().address.bytes) /
         (from.space == Space::disk ? drives->read : drives->write);
}

// Returns true for a second device without rates: those of the first cover its host.
bool TableCostModel::is_beside(std::int32_t device) const {
  return device > 0 && !table_.rates_of(devices_.at(device));
}

// Uses rates. The link's rate bounds copies between device and host memory.
std::optional<double> TableCostModel::by_rates(const std::string& device, const Program& program,
                                               const PlannedStep& step, const OpShape& shape) {
  const Op& op = program.op(step.op);
  OpCost cost = op.cost(shape);
  const bool beside = is_beside(step.device);
  const DeviceRates* const rates = rates_.use(beside ? devices_.front() : device);
  if (!rates) return {};
  if (beside) {
    const std::optional<double>& rate =
        op.def->copies ? rates->drive_bytes_per_second : rates->host_memory_bytes_per_second;
    if (!rate) return {};
    on_drives_ |= op.def->copies;
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
    throw NoFigure("nobody knows what products in fp8 take on '", device, "' (", rates->source,
                   "); prun bench kernels RECIPE measures it");
  return seconds;
}

double TableCostModel::share_beside_exchanges() {
  const DeviceRates* const rates = table_.rates_of(devices_.front());
  return rates ? rates->beside_exchanges.value_or(1) : 1;
}

// Returns the measured one, or that of the first device's rates; 0 if neither is known.
double TableCostModel::host_bandwidth() {
  if (table_.host_gb_per_second) return *table_.host_gb_per_second * 1e9;
  const DeviceRates* const rates = table_.rates_of(devices_.front());
  return rates ? rates->host_memory_bytes_per_second.value_or(0) : 0;
}

// Counts copies by rates, in both directions: their cost counts the result's bytes too.
double TableCostModel::drive_bandwidth() {
  for (std::size_t device = 1; device < devices_.size(); ++device)
    if (const DriveRates* const stated = stated_drives_of(static_cast<std::int32_t>(device)))
      return stated->read;
  const DeviceRates* const rates = table_.rates_of(devices_.front());
  return rates ? rates->drive_bytes_per_second.value_or(0) : 0;
}

// Returns the bytes that a copy moves at the drives' rate, which ranks of a host share.
double TableCostModel::drive_bytes(const Program& program, const PlannedStep& step) const {
  // Scale written bytes by how much slower the drives write than read.
  if (const std::optional<double> seconds = by_stated_drives(program, step))
    return *seconds * stated_drives_of(step.device)->read;
  if (!step.kernel || !is_beside(step.device) || has_kernels_.at(step.device)) return 0;
  if (!program.op(step.op).def->copies) return 0;
  return static_cast<double>(step.operands.front().address.bytes);
}

Overheads TableCostModel::overheads() {
  const auto found = table_.overheads.find(devices_.front());
  return found == table_.overheads.end() ? Overheads{} : found->second;
}

// There is no link between a device and memory if the device's memory is the host's.
Carried TableCostModel::carried(const Program& program, const Plan& plan, const PlannedStep& step) {
  Carried carried;
  carried.drives = drive_bytes(program, step);
  if (on_host_.empty() || !step.kernel) return carried;
  carried.host = host_bytes(program, plan, step, on_host_);
  carried.link = link_of(program, plan, step);
  if (carried.link >= 0 && on_host_.at(carried.link / 2)) carried.link = -1;
  if (carried.link >= 0) carried.link_bytes = step.operands.front().address.bytes;
  return carried;
}

// Describes the rates of the first device's host that the step uses.
std::string TableCostModel::host_text(const DeviceRates& rates) const {
  if (on_host_.empty() || &rates != table_.rates_of(devices_.front())) return {};
  std::vector<std::string> parts;
  if (rates.host_memory_bytes_per_second && !table_.host_gb_per_second)
    parts.push_back(format("memory of %.0f GB/s", *rates.host_memory_bytes_per_second / 1e9));
  if (rates.drive_bytes_per_second && on_drives_)
    parts.push_back(
        format("drives of assumed %.1f GB/s, both ways together", *rates.drive_bytes_per_second / 1e9));
  if (rates.host_bytes_per_second)
    parts.push_back(
        format("a link of %.0f GB/s each way to each device", *rates.host_bytes_per_second / 1e9));
  return parts.empty() ? "" : "a host with " + join(parts, ", ");
}

std::vector<std::string> TableCostModel::notes() const {
  std::vector<std::string> notes;
  for (const auto& [device, drives] : table_.stated_drives)
    notes.push_back(
        format("drives of %s that read %.1f GB/s and write %.1f GB/s together, as the recipe says",
               device.c_str(), drives.read / 1e9, drives.write / 1e9));
  if (fitted_)
    notes.push_back(
        detail::concat(fitted_, " of ", fitted_ + measured_,
                       " kernels by formula; prun bench kernels RECIPE measures them as they are"));
  if (!middles_.ops().empty())
    notes.push_back(
        detail::concat(middles_.estimated(), " kernels of ops that were not measured (",
                       join(std::vector<std::string>(middles_.ops().begin(), middles_.ops().end()), ", "),
                       "), like others in the middle; prun bench kernels RECIPE measures them"));
  for (const DeviceRates* rates : rates_.used()) {
    if (const std::string host = host_text(*rates); !host.empty()) notes.push_back(host);
    notes.push_back(detail::concat(
        by_rates_, " kernels of ", by_rates_ + fitted_ + measured_, " and links by ", rates->source,
        ", none of it measured on this machine: prun bench kernels RECIPE and prun bench comm measure"));
  }
  if (exchanges_.far_as_near())
    notes.emplace_back(
        "exchanges between hosts as on one host; prun bench comm RECIPE, started on them as training is, "
        "measures "
        "theirs");
  for (const auto& [what, from] : exchanges_.other_sizes())
    notes.push_back(detail::concat(what, " worked out from ", from));
  return notes;
}

}  // namespace prun
