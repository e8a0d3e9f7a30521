// What a model plugin makes of a config.json, and a model's object of its own options.
#pragma once

#include "plugin/loader.hpp"
#include "train/foreign/config.hpp"

namespace prun {

// The options of a plugin that reads files of this kind. Throws bad_input for what the model does not
// compute.
ConfigValues options_from(const ConfigFile& config, const PluginLibrary& model);

// `context` as build() has it.
ConfigValues written_config(ModelInterface& model, const ModelContext& context);

}  // namespace prun
