#include "train/assemble/model_program.hpp"

#include "plugin/traits.hpp"
#include "prun/strategy.hpp"

namespace prun {
namespace {

void apply_strategies(const Recipe& recipe, PluginHost& plugins, Program& program) {
  for (const RecipeSection& section : recipe.strategies()) {
    if (!works_in(Phase::model, plugins.note("strategy", section.plugin()))) continue;
    program.set_writer(section.path());
    const auto strategy = plugins.create<StrategyInterface>("strategy", section);
    raise(strategy->apply(Phase::model, &program_api(), &program));
  }
  program.set_writer("");
}

}  // namespace

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
  written.program->set_foreign_weights(foreign_weights_of(*written.model));
  apply_strategies(recipe, plugins, *written.program);
  written.program->settle_shapes();
  return written;
}

ForeignWeights foreign_weights_of(ModelInterface& model) {
  ForeignWeightsView view{};
  raise(model.foreign_weights(&view));
  return copy_of(view);
}

void leave_to_base(Program& program) {
  if (program.low_ranks().empty()) return;
  for (const Id id : program.parameters()) {
    Value& value = program.value(id);
    value.in_base = value.frozen && value.added_by.empty();
  }
}

}  // namespace prun
