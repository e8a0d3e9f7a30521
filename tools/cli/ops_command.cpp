// prun ops list, and ops among what prun explain knows.
#include <cstdio>

#include "cli/commands.hpp"
#include "cli/described_ops.hpp"
#include "cli/open_recipe.hpp"
#include "train/assemble/model_program.hpp"

namespace prun {

DescribedOps described_ops(const Arguments& arguments, const std::string& recipe) {
  DescribedOps ops;
  if (recipe.empty()) return ops;
  Opened opened = open_recipe(arguments, recipe);
  const KnownOps known = load_ops(*opened.recipe, *opened.plugins);
  const std::vector<std::string> names = opened.recipe->texts("plugins.ops");
  for (std::size_t i = 0; i < known.plugins.size(); ++i) ops.add(known.plugins[i], names[i]);
  return ops;
}

int ops_command(const Arguments& arguments) {
  const std::vector<std::string>& words = arguments.words;
  std::fputs(list_of_ops(described_ops(arguments, words.size() == 2 ? words[1] : "")).c_str(), stdout);
  return 0;
}

}  // namespace prun
