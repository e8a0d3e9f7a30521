#include "explain/described_ops.hpp"

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

}  // namespace prun
