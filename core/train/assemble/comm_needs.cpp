#include "train/assemble/comm_needs.hpp"

#include "base/text.hpp"
#include "train/assemble/automatic.hpp"

namespace prun {

std::string comm_of_axis(const Recipe& recipe, PluginHost& plugins, const std::string& axis) {
  const RecipeSection section = recipe.section("comm");
  std::string first, plugin;
  for (const std::string_view one : split(axis, '+')) {
    const std::string single(one.substr(0, one.find('.')));  // the axis' name in the recipe
    std::string name = section.has(single) ? section.text(single) : section.text("default");
    if (name == automatic) name = automatic_comm(recipe, plugins);
    if (first.empty()) first = single, plugin = name;
    if (name != plugin)
      throw_error(ErrorCode::bad_input, "cannot use comm.", first, " = \"", plugin, "\" and comm.", single,
                  " = \"", name, "\": some collectives are over both axes; name one plugin for both");
  }
  return plugin;
}

std::shared_ptr<CommInterface> make_comm(const Recipe& recipe, const DeviceInfo& device, PluginHost& plugins,
                                         const std::string& name) {
  auto plugin = plugins.create<CommInterface>("comm", name, recipe);
  CommInfo info;
  raise(plugin->info(&info));
  if (device.host_memory ? !info.host_memory : !info.device_memory && (!info.host_memory || info.enqueues))
    throw_error(ErrorCode::unsupported, "cannot use comm plugin '", name, "' with device '",
                device.name.view(), "': it does not move ", device.host_memory ? "host" : "device",
                " memory; name another in [comm]");
  if (info.enqueues && !device.asynchronous)
    throw_error(ErrorCode::unsupported, "cannot use comm plugin '", name, "' with device '",
                device.name.view(),
                "': it only enqueues, and the device has no asynchronous queues; name another in [comm]");
  return plugin;
}

}  // namespace prun
