// Holds what plugins are tried with that need a run around them.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "conform/interpreter.hpp"
#include "train/assemble/base_recipes.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

// Makes a folder that is removed with it.
class TrialFolder {
 public:
  TrialFolder();
  ~TrialFolder();
  TrialFolder(const TrialFolder&) = delete;
  TrialFolder& operator=(const TrialFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Returns a recipe of a tiny model in fp64 on the CPU, trained on text in the folder; `more` is added to it.
Recipe tiny_recipe(const BaseModel& model, const std::string& more, const std::filesystem::path& folder,
                   PluginHost& plugins);

// Holds the kernels of the device `cpu`, or none where there is no such plugin.
class CpuKernels {
 public:
  explicit CpuKernels(const std::vector<SearchPlace>& places);
  KernelsOf kernels() const;

 private:
  std::shared_ptr<DeviceInterface> device_;
};

}  // namespace prun
