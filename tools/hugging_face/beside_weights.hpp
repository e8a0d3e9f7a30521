// Copies files that transformers reads beside weights and no checkpoint has: the tokenizer's, its template,
// and how a model is to generate.
#pragma once

#include <filesystem>
#include <string>

#include "train/assemble/plugin_host.hpp"
#include "train/checkpoint/settings.hpp"

namespace prun {

// Copies them into `to` from where the run had them: its data's tokenizer, and the folder that it began with.
// Returns a line that says what was copied, or why nothing was; it is empty where the run names no such
// folder.
std::string copy_beside_weights(const Settings& run, PluginHost& plugins, const std::filesystem::path& to);

}  // namespace prun
