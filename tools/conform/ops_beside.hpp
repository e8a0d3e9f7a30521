// The ops that a plugin on trial may be written in: prun's, and those of the op plugins that lie beside it.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "conform/interpreter.hpp"
#include "ops/registry.hpp"
#include "prun/op_plugin.hpp"

namespace prun {

class OpsBeside {
 public:
  explicit OpsBeside(const std::filesystem::path& folder);

  const std::shared_ptr<OpRegistry>& registry() const { return registry_; }
  // Theirs for the device `cpu`, before others. Not to outlive this.
  KernelsOf with_kernels(const KernelsOf& others) const;

 private:
  std::shared_ptr<OpRegistry> registry_;
  std::vector<std::shared_ptr<OpPluginInterface>> plugins_;
};

}  // namespace prun
