// A recipe as a command line names it.
#pragma once

#include <memory>
#include <optional>

#include "assemble/plugin_host.hpp"
#include "cli/arguments.hpp"

namespace prun {

// Together with the plugins it can name.
struct Opened {
  std::unique_ptr<PluginHost> plugins;
  std::optional<Recipe> recipe;  // names its device
  std::string chosen;            // which device and comm plugins were chosen for it, or nothing
};

// `place`: of a rank that somebody has started; else this host is taken to have all of them.
Opened open_recipe(const Arguments& arguments, const std::string& file,
                   std::optional<LocalPlace> place = std::nullopt);

// Where ranks are threads of one process: each computes with one thread, and none is pinned.
Recipe with_thread_ranks(Recipe recipe);

}  // namespace prun
