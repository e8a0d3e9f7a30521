#include "train/assemble/comm_needs.hpp"

#include "train/assemble/automatic.hpp"

namespace prun {

std::string comm_of_axis(const Recipe& recipe, PluginHost& plugins, const std::string& axis) {
  const RecipeSection section = recipe.section("comm");
  const std::string name = section.has(axis) ? section.text(axis) : section.text("default");
  return name == automatic ? automatic_comm(recipe, plugins) : name;
}

std::shared_ptr<CommInterface> make_comm(const Recipe& recipe, const DeviceInfo& device, PluginHost& plugins,
                                         const std::string& name) {
  auto plugin = plugins.create<CommInterface>("comm", name, recipe);
  CommInfo info;
  raise(plugin->info(&info));
  if (device.host_memory ? !info.host_memory : !info.device_memory && (!info.host_memory || info.enqueues))
    throw_error(ErrorCode::unsupported, "comm plugin '", name, "' does not move ",
                device.host_memory ? "host" : "device", " memory, where device '", device.name.view(),
                "' has its values");
  if (info.enqueues && !device.asynchronous)
    throw_error(ErrorCode::unsupported, "comm plugin '", name, "' only enqueues, and device '",
                device.name.view(), "' has no queues that take work for later");
  return plugin;
}

}  // namespace prun
