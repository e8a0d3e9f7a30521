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
  std::optional<Recipe> recipe;
};

Opened open_recipe(const Arguments& arguments, const std::string& file);

// Where ranks are threads of one process: each computes with one thread, and none is pinned.
Recipe with_thread_ranks(Recipe recipe);

}  // namespace prun
