// Plugin kind `op`: new ops with their rules, gradients and kernels.
#pragma once

#include "prun/op.hpp"
#include "prun/options.hpp"

namespace prun {

struct DeviceKernel {
  const char* device;  // DeviceInfo::kind
  KernelDef kernel;
};

class OpPlugin {
 public:
  virtual ~OpPlugin() = default;
  // Borrowed for the life of the plugin.
  virtual std::vector<OpDef> ops() = 0;
  virtual std::vector<DeviceKernel> kernels() = 0;
};

class OpPluginInterface {
 public:
  virtual Status ops(Array<OpDef>* ops) noexcept = 0;
  virtual Status kernels(Array<DeviceKernel>* kernels) noexcept = 0;

 protected:
  ~OpPluginInterface() = default;
};

template <class Author>
class OpPluginAdapter final : public OpPluginInterface {
 public:
  explicit OpPluginAdapter(const Options& options)
      : author_(options), ops_(base().ops()), kernels_(base().kernels()) {}
  Status ops(Array<OpDef>* ops) noexcept override {
    *ops = {ops_.data(), ops_.size()};
    return {};
  }
  Status kernels(Array<DeviceKernel>* kernels) noexcept override {
    *kernels = {kernels_.data(), kernels_.size()};
    return {};
  }

 private:
  OpPlugin& base() { return author_; }
  Author author_;
  std::vector<OpDef> ops_;
  std::vector<DeviceKernel> kernels_;
};

}  // namespace prun
