#include "train/assemble/one_host.hpp"

#include <algorithm>
#include <optional>

#include "base/machine.hpp"
#include "base/text.hpp"
#include "plugin/traits.hpp"
#include "train/assemble/does_not_fit.hpp"

namespace prun {
namespace {

void check_units(const DeviceInfo& device, std::int64_t ranks) {
  if (device.units == 0 || ranks <= device.units) return;
  throw_error(ErrorCode::bad_input, "each of the ", ranks, " ranks takes a unit of device '",
              device.name.view(), "', and this machine has ", device.units,
              "; take as many ranks, or device.plugin = \"cpu\"");
}

// Returns the memory of ranks [first, last), or nothing if it is unknown how much the host has.
std::optional<HostMemory> host_memory_of(const Assembly& assembly, std::int64_t first, std::int64_t last) {
  const std::vector<DeviceInfo>& devices = assembly.device_infos();
  const auto found = std::find_if(devices.begin(), devices.end(),
                                  [](const DeviceInfo& device) { return device.host_memory; });
  if (found == devices.end()) return {};
  HostMemory memory{static_cast<std::size_t>(found - devices.begin()), last - first, 0, found->memory_bytes};
  if (!assembly.knows_memory_of(memory.device)) return {};
  for (std::int64_t rank = first; rank < last; ++rank)
    memory.needed +=
        assembly.bytes_in_memory_of(memory.device, assembly.plan_of(rank)) + assembly.process_bytes_of(rank);
  return memory;
}

// `key` is that of the recipe which says how many units a host has; a device that finds its own knows better.
std::int64_t ranks_by(const DeviceInfo& device, const Recipe& recipe, const std::string& key,
                      std::int64_t world) {
  const bool stated = device.units == 0 && !key.empty() && recipe.find(key) && recipe.integer(key) > 0;
  const std::int64_t units = stated ? recipe.integer(key) : device.units;
  return units > 0 ? std::min<std::int64_t>(units, world) : device.absent ? 1 : world;
}

}  // namespace

std::int64_t ranks_of_host(const DeviceInfo& device, const Recipe& recipe, PluginHost& plugins,
                           std::int64_t world) {
  const PluginNote& note = plugins.note("device", recipe.section("device").plugin());
  const std::string_view option = trait_of(note, "plan_units");
  return ranks_by(device, recipe, option.empty() ? "" : detail::concat("device.", option), world);
}

std::int64_t ranks_of_host(const Assembly& assembly) {
  return ranks_by(assembly.device_info(), assembly.recipe(), assembly.key_of_planned_units(),
                  assembly.mesh().world());
}

std::optional<std::int64_t> left_on_hosts(const Assembly& assembly) {
  const std::int64_t world = assembly.mesh().world(), each = ranks_of_host(assembly);
  std::optional<std::int64_t> least;
  for (std::int64_t first = 0; first < world; first += each) {
    const std::int64_t last = std::min(world, first + each);
    const auto memory = host_memory_of(assembly, first, last);
    if (!memory) return {};
    const std::int64_t left = (memory->there - memory->needed) / (last - first);
    least = std::min(least.value_or(left), left);
  }
  return least;
}

std::optional<HostMemory> crowded_host(const Assembly& assembly) {
  const std::int64_t world = assembly.mesh().world(), each = ranks_of_host(assembly);
  for (std::int64_t first = 0; first < world; first += each) {
    auto memory = host_memory_of(assembly, first, std::min(world, first + each));
    if (memory && !memory->fits()) return memory;
  }
  return {};
}

bool hosts_have_room(const Assembly& assembly) { return !crowded_host(assembly); }

void check_hosts_have_room(const Assembly& assembly) {
  if (!hosts_have_room(assembly))
    throw DoesNotFit(ErrorCode::bad_input, "the ranks of a host need more memory than it has");
}

void check_fits_one_host(const Assembly& assembly) {
  check_units(assembly.device_info(), assembly.mesh().world());
  const std::optional<HostMemory> memory = host_memory_of(assembly, 0, assembly.mesh().world());
  if (!memory || memory->fits()) return;
  const auto size = [](std::int64_t bytes) { return size_text(bytes); };
  throw DoesNotFit(
      ErrorCode::bad_input,
      detail::concat("the ", assembly.mesh().world(), " ranks together need ", size(memory->needed),
                     ", this machine has ", size(memory->there),
                     "; take fewer ranks, a smaller model or batch.micro, or strategies that share out more",
                     assembly.hint_of_more_memory(memory->device)));
}

bool cores_are_crowded(const Assembly& assembly) {
  const DeviceInfo& device = assembly.device_info();
  return device.host_memory && ranks_of_host(assembly) * device.threads > this_machine().cores;
}

std::string crowded_cores(const Assembly& assembly) {
  if (!cores_are_crowded(assembly)) return {};
  const DeviceInfo& device = assembly.device_info();
  const std::int64_t ranks = ranks_of_host(assembly), cores = this_machine().cores;
  return detail::concat(ranks, ranks == 1 ? " rank x " : " ranks x ", device.threads,
                        device.threads == 1 ? " thread" : " threads", " share ", cores,
                        cores == 1 ? " core" : " cores",
                        ", and take turns: a step takes longer than it would with a core for each");
}

}  // namespace prun
