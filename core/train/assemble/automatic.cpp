#include "train/assemble/automatic.hpp"

#include <dlfcn.h>

#include <set>

#include "base/text.hpp"
#include "plugin/traits.hpp"
#include "train/assemble/batch_arithmetic.hpp"
#include "train/assemble/comm_needs.hpp"

namespace prun {
namespace {

// Says whether a library can be opened. It stays open: the caller is about to use it.
bool can_open(std::string_view library) {
  return library.empty() || ::dlopen(std::string(library).c_str(), RTLD_LAZY | RTLD_LOCAL) != nullptr;
}

// Returns an option of the recipe's device that this one does not have, or the empty text.
std::string foreign_option(const Recipe& recipe, const PluginNote& device) {
  const Schema known = parse_schema(device.options, describe(device));
  for (const auto& entry : recipe.section("device").entries())
    if (entry.at.source && entry.declared_by != "core" && !known.find(entry.key)) return entry.key;
  return "";
}

// Returns the plugins of all axes with more than one rank, once each.
std::set<std::string> comms_of(const Recipe& recipe, PluginHost& plugins) {
  const Mesh mesh = mesh_of(recipe);
  std::set<std::string> names;
  for (const Axis& axis : mesh.axes())
    if (axis.extent > 1) names.insert(comm_of_axis(recipe, plugins, axis.name));
  return names;
}

Recipe named(const Recipe& recipe, std::string_view device) { return recipe.with("device.plugin", device); }

// Throws an Error that says why this device cannot be used here.
void try_device(const Recipe& recipe, PluginHost& plugins, const std::string& device, LocalPlace local) {
  check_driver(plugins, device);
  const auto made = plugins.create<DeviceInterface>("device", recipe.section("device"));
  DeviceInfo info;
  raise(made->info(&info));
  if (info.absent) throw_error(ErrorCode::unsupported, info.name.view());
  if (local.alike && info.units > 0 && local.ranks > info.units)
    throw_error(ErrorCode::unsupported, info.units, " here for ", local.ranks, " ranks");
  for (const std::string& comm : comms_of(recipe, plugins)) make_comm(recipe, info, plugins, comm);
}

// Says why the recipe does not run on this device here, or returns nothing.
std::string problem_with(const Recipe& recipe, PluginHost& plugins, const std::string& device,
                         LocalPlace local) {
  try {
    const std::string foreign = foreign_option(recipe, plugins.note("device", device));
    if (!foreign.empty()) return detail::concat("it has no option '", foreign, "'");
    try_device(named(recipe, device), plugins, device, local);
    return "";
  } catch (const Error& error) {
    return std::string(first_line(error.what()));
  }
}

std::string said_of(const Recipe& recipe, PluginHost& plugins, const std::string& device) {
  std::string text = detail::concat("device ", device);
  for (const std::string& comm : comms_of(recipe, plugins)) text += " and comm " + comm;
  return text;
}

}  // namespace

void check_driver(PluginHost& plugins, const std::string& device) {
  const std::string_view driver = trait_of(plugins.note("device", device), "driver");
  if (!can_open(driver)) throw_error(ErrorCode::unsupported, "there is no ", driver, " here");
}

namespace {

// Says whether the recipe lets several ranks have one unit of its device.
bool shares_units(const Recipe& recipe, PluginHost& plugins) {
  const RecipeSection device = recipe.section("device");
  const std::string option(trait_of(plugins.note("device", device.plugin()), "shared"));
  return !option.empty() && device.has(option) && device.flag(option);
}

// Returns the comm plugin of the device that runs everywhere; it is empty if there is none.
std::string comm_of_last(PluginHost& plugins) {
  const std::vector<std::string> devices = plugins.automatic_devices();
  return devices.empty() ? "" : std::string(trait_of(plugins.note("device", devices.back()), "comm"));
}

}  // namespace

std::string comm_of_device(PluginHost& plugins, const std::string& device) {
  const std::string_view own = trait_of(plugins.note("device", device), "comm");
  if (!own.empty()) return std::string(own);
  const std::string last = comm_of_last(plugins);
  if (last.empty())
    throw_error(ErrorCode::bad_input, "comm: no device plugin says which comm plugin goes with device '",
                device, "'; name one in [comm], default = \"…\"");
  return last;
}

std::string automatic_comm(const Recipe& recipe, PluginHost& plugins) {
  const std::string last = shares_units(recipe, plugins) ? comm_of_last(plugins) : "";
  return last.empty() ? comm_of_device(plugins, recipe.section("device").plugin()) : last;
}

DeviceChoice choose_device(const Recipe& recipe, PluginHost& plugins, LocalPlace local) {
  if (recipe.section("device").plugin() != automatic) return {recipe, ""};
  plugins.set_local(local);
  std::string against;
  const std::vector<std::string> devices = plugins.automatic_devices();
  for (const std::string& device : devices) {
    const bool last = device == devices.back();
    const std::string problem = last ? "" : problem_with(recipe, plugins, device, local);
    if (problem.empty()) {
      const Recipe chosen = named(recipe, device);
      return {chosen, said_of(chosen, plugins, device) + against};
    }
    against += detail::concat("; device ", device, ": ", problem);
  }
  throw_error(ErrorCode::bad_input,
              "device.plugin: `auto` finds no device plugin that it may stand for; see prun plugins list");
}

}  // namespace prun
