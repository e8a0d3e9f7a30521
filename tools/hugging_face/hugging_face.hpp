// Converts directories of Hugging Face's libraries to checkpoints and back: a piece of a tensor at a time, so
// that memory does not grow with the model.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "train/assemble/plugin_host.hpp"
#include "train/checkpoint/checkpoint_files.hpp"

namespace prun {

struct Conversion {
  std::filesystem::path from, to;                   // `to` must not be there yet
  std::optional<DType> type;                        // that of the weights; nothing: as they are
  std::int64_t file_bytes = std::int64_t{5} << 30;  // limits a file of an exported directory
  std::vector<std::string> sets;                    // those of the model: "model.plugin=mine"
  std::string state = {};  // of an optimizer, exported in place of the weights; empty: the weights
};

// Writes a checkpoint of step 0 that has weights and the model's options, and nothing else: `model.init` may
// name it. Returns what to say of it.
std::string import_directory(PluginHost& plugins, const Conversion& how);

// Exports the weights of a checkpoint, or of a run's latest, with the config.json that its model writes.
// Adapters are merged in.
std::string export_checkpoint(PluginHost& plugins, const Conversion& how);

// Exports its adapters alone, as PEFT keeps them.
std::string export_adapter(PluginHost& plugins, const Conversion& how);

}  // namespace prun
