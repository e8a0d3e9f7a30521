// Describes a model by itself: its forward program over whole tensors, without a run around it.
#pragma once

#include "program/step_program.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

// ------------------------------------------------------------------- model program

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

// ------------------------------------------------------------------- base recipes
// Holds the recipes that programs begin with if they are given none, and so the only place in the core where
// plugins are named.

// Trains next to nothing, for measurements without training: what is measured is added.
inline constexpr const char* smallest_recipe = R"(
[run]
name = "nothing"
steps = 1
[model]
plugin = "gpt"
layers = 1
hidden = 8
heads = 1
seq = 8
vocab = 8
[data]
plugin = "text"
path = "none"
[batch]
global = 1
micro = 1
[optimizer]
plugin = "sgd"
lr = 0.1
[device]
plugin = "cpu"
)";

// Turns it into ranks that share out the batch and exchange from host memory.
inline constexpr const char* ranks_of_smallest =
    "[comm]\ndefault = \"ucx\"\n[[strategy]]\nplugin = \"data\"\n";

// Surrounds a model of which only the program is needed.
inline constexpr const char* around_a_model = R"(
[run]
name = "weights"
steps = 1
[data]
plugin = "text"
path = "."
[batch]
global = 1
micro = 1
[optimizer]
plugin = "sgd"
lr = 0.0
)";

// Surrounds what a plugin is tried with: it lacks [model] and [data].
inline constexpr const char* around_a_trial = R"(
[run]
name = "trial"
steps = 2
[batch]
global = 8
micro = 2
[optimizer]
plugin = "adamw"
lr = 1e-2
clip = 1.0
[precision]
compute = "fp64"
state = "fp64"
[device]
plugin = "cpu"
threads = 1
pin = false
)";

// Describes a model that plugins are tried with, and what is stated of it besides its size.
struct BaseModel {
  const char* plugin;
  const char* options;
};
inline constexpr BaseModel trial_models[] = {{"gpt", ""}, {"llama", "kv_heads = 2\nffn = 32\n"}};
inline constexpr const char* bytes_data = "text";
inline constexpr const char* host_device = "cpu";

// Describes models whose kernels are measured, each with an optimizer: together they use all ops.
struct BaseFamily {
  const char* model;
  const char* optimizer;
};
inline constexpr BaseFamily grid_families[] = {
    {"plugin = \"gpt\"\ndropout = 0.1\n", "plugin = \"adamw\"\n"},
    {"plugin = \"llama\"\nkv_heads = 1\n", "plugin = \"sgd\"\nmomentum = 0.9\n"}};

}  // namespace prun
