// Adds the options that a section's plugin declares to the core's.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "recipe/section_scope.hpp"

namespace prun::recipe {

class PluginOptions {
 public:
  PluginOptions(const std::shared_ptr<const Source>& main, const PluginCatalog& catalog,
                Diagnostics& diagnostics)
      : main_(main), catalog_(catalog), diagnostics_(diagnostics) {}

  // Finds the plugin that the section names, or the one that it has by default, and adds what it declares.
  void add(Scope& scope);
  // Reports a plugin that does not exist or cannot be used.
  std::optional<Schema> find(const std::string& kind, const std::string& name, const Location& at);

 private:
  void add_options(Scope& scope, const Schema& schema, const Location& at);

  const std::shared_ptr<const Source>& main_;
  const PluginCatalog& catalog_;
  Diagnostics& diagnostics_;
};

}  // namespace prun::recipe
