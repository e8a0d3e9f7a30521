#include "conform/ops_beside.hpp"

#include <algorithm>

#include "conform/trial_options.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

OpsBeside::OpsBeside(const std::filesystem::path& folder, const std::vector<SearchPlace>& others)
    : registry_(std::make_shared<OpRegistry>()) {
  const std::vector<SearchPlace> beside = {{folder, "the plugin's folder"}};
  PluginHost host(beside), elsewhere(others);
  for (const std::string& name : plugin_names(beside, "op")) take(host, name);
  for (const std::string& name : plugin_names(others, "op")) try {
      if (std::find(names_.begin(), names_.end(), name) == names_.end()) take(elsewhere, name);
    } catch (const Error&) {  // the user has not named it
    }
}

// Leaves out a plugin that needs an option, or has an op that is known already.
bool OpsBeside::take(PluginHost& host, const std::string& name) {
  const DefaultOptions options = default_options(trial_schema(host.note("op", name), ""));
  if (!options.required.empty()) return false;
  const auto plugin = host.create<OpPluginInterface>("op", name, options.api);
  Array<OpDef> ops;
  raise(plugin->ops(&ops));
  for (const OpDef& op : ops)
    if (registry_->contains(op.kind)) return false;
  Array<DeviceKernel> kernels;
  raise(plugin->kernels(&kernels));
  for (const DeviceKernel& kernel : kernels) check_kernel(kernel, name);
  for (const OpDef& op : ops) registry_->add(op, name);
  plugins_.push_back(plugin);
  names_.push_back(name);
  return true;
}

KernelsOf OpsBeside::with_kernels(const KernelsOf& others) const {
  return [this, others](std::string_view op) -> const KernelDef* {
    for (const auto& plugin : plugins_) {
      Array<DeviceKernel> kernels;
      raise(plugin->kernels(&kernels));
      for (const DeviceKernel& own : kernels)
        if (std::string_view(own.device) == "cpu" && op == own.kernel.op) return &own.kernel;
    }
    return others(op);
  };
}

}  // namespace prun
