// Describes a model by itself: its forward program over whole tensors, without a run around it.
#pragma once

#include "program/step_program.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

// Holds the known ops: prun's and those of a recipe's op plugins.
struct KnownOps {
  std::shared_ptr<OpRegistry> registry;
  std::vector<std::shared_ptr<OpPluginInterface>> plugins;
};
KnownOps load_ops(const Recipe& recipe, PluginHost& plugins);

// Returns a whole recipe, as the code that reads recipes needs: that of a run of which only `sets` are meant,
// such as "model.plugin=gpt".
Recipe model_recipe(PluginHost& plugins, const std::vector<std::string>& sets);

struct ModelProgram {
  KnownOps ops;
  std::shared_ptr<ModelInterface> model;
  ModelContext context;
  std::unique_ptr<Program> program;
};
// Writes the model, with the changes of the recipe's strategies of phase `model`.
ModelProgram write_model(const Recipe& recipe, PluginHost& plugins);

ForeignWeights foreign_weights_of(ModelInterface& model);

// Leaves parameters to the base: if adapters stand beside frozen parameters that start from `model.init`,
// these come from there, and no checkpoint holds them.
void leave_to_base(Program& program);

}  // namespace prun
