// The recipe code asks this which plugins there are. The code that knows the plugins (or a test) fills it in.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "recipe/schema.hpp"

namespace prun::recipe {

struct PluginCatalog {
  // Returns the options of a plugin; null when there is no such plugin. Throws Error when there is one that
  // cannot be used; its message then becomes a problem of the recipe. The schema is copied before the next
  // call.
  std::function<const Schema*(std::string_view kind, std::string_view name)> schema;
  // All known names of a kind, for suggestions and references.
  std::function<std::vector<std::string>(std::string_view kind)> names;
  // What a config.json, or the folder that has it, says of a model plugin's options, as TOML by key; of the
  // plugin that reads it, with key `plugin`, where none is named. Empty: nobody can say.
  std::function<std::vector<std::pair<std::string, std::string>>(std::string_view name,
                                                                 const std::string& path)>
      model_options;
  // Returns one line on what a plugin is for.
  std::function<std::string(std::string_view kind, std::string_view name)> help;
};

}  // namespace prun::recipe
