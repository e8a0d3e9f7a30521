// Converts a config.json to a model plugin's options, and a model's options to a config.json.
#pragma once

#include "huggingface/config.hpp"
#include "plugin/loader.hpp"

namespace prun {

// Returns the options of a plugin that reads files of this kind. Throws bad_input for what the model does not
// compute.
ConfigValues options_from(const ConfigFile& config, const PluginLibrary& model);

// Returns the config that the model writes; `context` is that of build().
ConfigValues written_config(ModelInterface& model, const ModelContext& context);

}  // namespace prun
