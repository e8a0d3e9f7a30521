// Implements prun reference: it lists all keys of recipes.
#include <cstdio>

#include "cli/command_table.hpp"
#include "explain/explain.hpp"
#include "explain/json_schema.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {
namespace {

int reference_command(const Arguments& arguments) {
  PluginHost plugins(plugin_places({}, {}, arguments.plugin_paths));
  const bool schema = arguments.has("--json-schema");
  std::fputs(
      (schema ? recipe::json_schema(plugins.catalog()) + "\n" : recipe::reference_markdown(plugins.catalog()))
          .c_str(),
      stdout);
  return 0;
}

}  // namespace

std::vector<Command> reference_verb() {
  return {{"reference",
           "",
           "all keys as Markdown",
           {{"--json-schema", "", "as a schema by which editors check recipes (Even Better TOML, taplo)"}},
           reference_command}};
}

}  // namespace prun
