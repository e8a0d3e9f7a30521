#include "conform/ops_beside.hpp"

#include "conform/trial_options.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

OpsBeside::OpsBeside(const std::filesystem::path& folder) : registry_(std::make_shared<OpRegistry>()) {
  const std::vector<SearchPlace> beside = {{folder, "the plugin's folder"}};
  PluginHost host(beside);
  for (const std::string& name : plugin_names(beside, "op")) {
    const DefaultOptions options = default_options(trial_schema(host.note("op", name), ""));
    if (!options.required.empty()) continue;
    plugins_.push_back(host.create<OpPluginInterface>("op", name, options.api));
    Array<OpDef> ops;
    raise(plugins_.back()->ops(&ops));
    for (const OpDef& op : ops) registry_->add(op, name);
    Array<DeviceKernel> kernels;
    raise(plugins_.back()->kernels(&kernels));
    for (const DeviceKernel& kernel : kernels) check_kernel(kernel, name);
  }
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
