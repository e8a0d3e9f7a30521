#include "train/assemble/model_program.hpp"

#include "train/assemble/base_recipes.hpp"

namespace prun {
KnownOps load_ops(const Recipe& recipe, PluginHost& plugins) {
  KnownOps known{std::make_shared<OpRegistry>(), {}};
  for (const std::string& name : recipe.texts("plugins.ops")) {
    known.plugins.push_back(plugins.create<OpPluginInterface>("op", name, recipe));
    Array<OpDef> ops;
    raise(known.plugins.back()->ops(&ops));
    for (const OpDef& op : ops) known.registry->add(op, name);
    Array<DeviceKernel> kernels;
    raise(known.plugins.back()->kernels(&kernels));
    for (const DeviceKernel& kernel : kernels) check_kernel(kernel, name);
  }
  return known;
}

Recipe model_recipe(PluginHost& plugins, const std::vector<std::string>& sets) {
  return Recipe::parse(around_a_model, "the recipe of a model alone", sets, plugins.catalog());
}

ModelProgram write_model(const Recipe& recipe, PluginHost& plugins) {
  ModelProgram written;
  written.ops = load_ops(recipe, plugins);
  written.context = {1, recipe.integer("model.seq")};
  written.program = std::make_unique<Program>(written.ops.registry, Precision{}, written.context);
  written.model = plugins.create<ModelInterface>("model", recipe.section("model"));
  raise(written.model->build(written.context, &program_api(), written.program.get()));
  return written;
}

}  // namespace prun
