// Holds what plugins are tried with that need a run around them.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "plugin_check/conformance.hpp"
#include "plugin_check/interpreter.hpp"
#include "recipe/recipe.hpp"
#include "train/assemble/model_program.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

// ------------------------------------------------------------------- tiny recipe

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

// ------------------------------------------------------------------- trial options
// Makes the options that a plugin is tried with: its defaults, and values for those that have none.

// Returns the plugin's schema with these values as defaults. `given` has the form of its section of a recipe.
// A model's options that are required and not given are tiny, where their names are known. Throws bad_input
// for keys and values that the schema does not have.
Schema trial_schema(const PluginNote& note, const std::string& given);
// Returns, for a model, the schema in which every option that is not given is tiny, defaults included.
Schema tiny_schema(const PluginNote& note, const std::string& given);

// Returns every option at its default.
DefaultOptions default_options(const Schema& schema);

// Returns the same schema with another default.
Schema with_default(const Schema& schema, const std::string& key, recipe::Value value);

}  // namespace prun
