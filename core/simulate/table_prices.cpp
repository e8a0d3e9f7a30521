#include "simulate/table_prices.hpp"

#include <set>

#include "base/format.hpp"
#include "base/text.hpp"
#include "plan/moved_bytes.hpp"
#include "program/fp8_products.hpp"
#include "simulate/no_figure.hpp"

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

std::string joined(const std::set<std::string>& names) {
  return join(std::vector<std::string>(names.begin(), names.end()), ", ");
}

// Says what a table has where it has nothing of the device itself: kernels of others, such as of another
// number of threads, or rates.
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

// Says whether it is a device beside the first that has no rates of its own: those of the first say what its
// host does.
bool TablePrices::is_beside(std::int32_t device) const {
  return device > 0 && !table_.rates_of(devices_.at(device));
}

// Prices a step by rates. Their link limits what moves between the device and host memory.
std::optional<double> TablePrices::by_rates(const std::string& device, const Program& program,
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

// Returns what a copy by rates takes for both ways at once: its cost counts the bytes of its result as well.
double TablePrices::drive_bandwidth() {
  const DeviceRates* const rates = table_.rates_of(devices_.front());
  return rates ? rates->drive_bytes_per_second.value_or(0) : 0;
}

// Returns what a copy moves that is priced by the drive's rate, which ranks of a host share.
double TablePrices::drive_bytes(const Program& program, const PlannedStep& step) const {
  if (!step.kernel || !is_beside(step.device) || has_kernels_.at(step.device)) return 0;
  if (!program.op(step.op).def->copies) return 0;
  return static_cast<double>(step.operands.front().address.bytes);
}

Overheads TablePrices::overheads() {
  const auto found = table_.overheads.find(devices_.front());
  return found == table_.overheads.end() ? Overheads{} : found->second;
}

// Returns the carried bytes: between a device whose memory is the host's and that memory there is no link.
Carried TablePrices::carried(const Program& program, const Plan& plan, const PlannedStep& step) {
  Carried carried;
  carried.drives = drive_bytes(program, step);
  if (on_host_.empty() || !step.kernel) return carried;
  carried.host = host_bytes(program, plan, step, on_host_);
  carried.link = link_of(program, plan, step);
  if (carried.link >= 0 && on_host_.at(carried.link / 2)) carried.link = -1;
  if (carried.link >= 0) carried.link_bytes = step.operands.front().address.bytes;
  return carried;
}

// Says what the rates take the first device's host to have, where a step uses it.
std::string TablePrices::host_text(const DeviceRates& rates) const {
  if (on_host_.empty() || &rates != table_.rates_of(devices_.front())) return {};
  std::vector<std::string> parts;
  if (rates.host_memory_bytes_per_second && !table_.host_gb_per_second)
    parts.push_back(format("memory of %.0f GB/s", *rates.host_memory_bytes_per_second / 1e9));
  if (rates.drive_bytes_per_second && on_drives_)
    parts.push_back(format("drives of %.1f GB/s, both ways together", *rates.drive_bytes_per_second / 1e9));
  if (rates.host_bytes_per_second)
    parts.push_back(
        format("a link of %.0f GB/s each way to each device", *rates.host_bytes_per_second / 1e9));
  return parts.empty() ? "" : "a host with " + join(parts, ", ");
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
