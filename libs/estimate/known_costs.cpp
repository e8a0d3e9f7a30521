#include "estimate/known_costs.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "estimate/costs_file.hpp"
#include "plugin/traits.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

// Returns them sorted by name.
std::vector<fs::path> shipped_files() {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(shipped_costs_folder(), ignored))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

// Returns the file, or else the shipped one of that name.
fs::path file_of(const fs::path& named) {
  std::error_code ignored;
  if (fs::exists(named, ignored) || named.has_parent_path()) return named;
  for (const fs::path& shipped : shipped_files()) {
    if (shipped.stem() == named) return shipped;
    if (const std::optional<CostTable> table = read_costs(shipped); table && table->rates_of(named.string()))
      return shipped;
  }
  return named;
}

}  // namespace

fs::path shipped_costs_folder() {
  return fs::canonical("/proc/self/exe").parent_path().parent_path() / "share" / "prun" / "costs";
}

std::vector<DeviceRates> shipped_rates() {
  std::vector<DeviceRates> rates;
  for (const fs::path& file : shipped_files())
    if (const std::optional<CostTable> table = read_costs(file))
      rates.insert(rates.end(), table->rates.begin(), table->rates.end());
  return rates;
}

std::string names_of_shipped() {
  std::vector<std::string> names;
  for (const DeviceRates& one : shipped_rates())
    names.push_back(one.short_name.empty() ? one.device : one.short_name);
  return join(names, ", ");
}

KnownCosts known_costs(const std::optional<fs::path>& named) {
  KnownCosts known;
  const fs::path file = named ? file_of(*named) : default_costs_path();
  std::optional<CostTable> table = read_costs(file);
  if (named && !table)
    throw_error(ErrorCode::not_found, "there is no cost table ", file.string(),
                "; prun bench kernels RECIPE --out FILE makes one, and those of ", names_of_shipped(),
                " come with prun");
  known.measured = table.has_value();
  if (table) known.table = std::move(*table);
  for (DeviceRates& one : shipped_rates()) known.table.rates.push_back(std::move(one));
  return known;
}

CostTable costs_for(const CostTable& costs, const DeviceInfo& device, const Recipe& recipe,
                    PluginHost& plugins) {
  const bool elsewhere = device.absent && costs.machine == this_machine();
  CostTable held = elsewhere ? costs.rates_alone() : costs;
  if (held.has_kernels_of(device.name.view()) || held.rates_of(device.name.view())) return held;
  // Layouts over more ranks have fewer threads a rank, and may use these measurements.
  if (!device.absent && !held.exact.empty()) return held;
  const std::string_view option =
      trait_of(plugins.note("device", recipe.section("device").plugin()), "plan_name");
  throw_error(ErrorCode::not_found, "cannot predict times on '", device.name.view(),
              "': no cost table has it; ",
              device.absent ? "prun bench kernels RECIPE --out FILE makes one on a machine that has it"
                            : "prun bench kernels and prun bench comm measure this machine",
              option.empty() ? ""
                             : detail::concat(", and device.", option,
                                              " names one whose rates come with prun: ", names_of_shipped()));
}

}  // namespace prun
