// Implements prun explain: it says what a key, a plugin or an op means.
#include <cstdio>

#include "cli/command_table.hpp"
#include "cli/open_recipe.hpp"
#include "explain/described_ops.hpp"
#include "explain/explain.hpp"

namespace prun {
namespace {

// Explains the keys and plugins of that name; those of a recipe where the command names one.
std::string explain_key(const Arguments& arguments, const std::string& name, const std::string& recipe) {
  if (!recipe.empty()) return recipe::explain(name, *open_recipe(arguments, recipe).recipe);
  PluginHost plugins(plugin_places({}, {}, arguments.plugin_paths));
  return recipe::explain(name, plugins.catalog());
}

int explain_command(const Arguments& arguments) {
  const std::string &name = arguments.words[0],
                    recipe = arguments.words.size() == 2 ? arguments.words[1] : "";
  const std::string op = explain_op(described_ops(arguments, recipe), name);
  std::fputs(op.c_str(), stdout);
  try {
    std::fputs(explain_key(arguments, name, recipe).c_str(), stdout);
  } catch (const Error& error) {
    if (op.empty() || error.code() != ErrorCode::not_found) throw;
  }
  return 0;
}

}  // namespace

std::vector<Command> explain_verb() {
  return {
      {"explain",
       "NAME [RECIPE]",
       "what a key of a recipe (model.heads), a plugin (zero) or an op (linear) means, and what it is in a "
       "recipe",
       {},
       explain_command}};
}

}  // namespace prun
