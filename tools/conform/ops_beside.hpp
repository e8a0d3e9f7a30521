// Finds the ops that a plugin on trial may be written in: prun's, those of the op plugins in its folder, and
// those of all others that are found.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "conform/interpreter.hpp"
#include "ops/registry.hpp"
#include "plugin/discovery.hpp"
#include "prun/op_plugin.hpp"

namespace prun {

class PluginHost;

class OpsBeside {
 public:
  // Of several plugins that define an op the first counts, those in the folder before others; one that cannot
  // be used is passed over there.
  OpsBeside(const std::filesystem::path& folder, const std::vector<SearchPlace>& others);

  // Returns plugins by their names in [plugins] ops.
  const std::vector<std::string>& names() const { return names_; }
  const std::shared_ptr<OpRegistry>& registry() const { return registry_; }
  // Returns their kernels for the device `cpu`, before others. It must not outlive this.
  KernelsOf with_kernels(const KernelsOf& others) const;

 private:
  bool take(PluginHost& host, const std::string& name);

  std::vector<std::string> names_;
  std::shared_ptr<OpRegistry> registry_;
  std::vector<std::shared_ptr<OpPluginInterface>> plugins_;
};

}  // namespace prun
