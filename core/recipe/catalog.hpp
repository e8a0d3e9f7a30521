// Tells the recipe code which plugins there are. The code that knows the plugins (or a test) fills it in.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "recipe/schema.hpp"

namespace prun::recipe {

struct PluginCatalog {
  // Returns the options of a plugin, or null if there is no such plugin. Throws Error if there is one that
  // cannot be used; its message then becomes a problem of the recipe. The schema is copied before the next
  // call.
  std::function<const Schema*(std::string_view kind, std::string_view name)> schema;
  // Returns all known names of a kind, for suggestions and references.
  std::function<std::vector<std::string>(std::string_view kind)> names;
  // Returns what a config.json, or the folder that has it, says of a model plugin's options, as TOML by key;
  // if no plugin is named, of the plugin that reads it, with key `plugin`. If it is empty, no config.json can
  // be read.
  std::function<std::vector<std::pair<std::string, std::string>>(std::string_view name,
                                                                 const std::string& path)>
      model_options;
  // Returns one line on what a plugin is for.
  std::function<std::string(std::string_view kind, std::string_view name)> help;
};

}  // namespace prun::recipe
