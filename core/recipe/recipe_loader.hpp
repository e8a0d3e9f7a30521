// Turns a recipe file with its includes, or a text, into one tree.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "recipe/diagnostics.hpp"
#include "recipe/node.hpp"

namespace prun::recipe {

struct LoadedTree {
  Node root;  // tree without the `include` key
  std::shared_ptr<const Source> main;
  std::size_t sources = 0;  // number of texts that were read
};

// Loads a file. `include = ["base.toml"]` at the top of a file reads other files below the folder of the
// first one, relative to the file that names them; the including file wins over included ones, later includes
// over earlier ones. Throws not_found or storage if the first file cannot be read; everything else goes to
// `diagnostics`. Bounds: 1 MiB a file, 8 includes deep, 32 files.
LoadedTree load_tree(const std::filesystem::path& file, Diagnostics& diagnostics);

// Loads a recipe that is in memory. It has no folder, so it cannot include.
LoadedTree load_tree_from_text(std::string text, std::string name, Diagnostics& diagnostics);

// Returns what `[plugins] path` says, in the file or in `overrides`; problems are left to the full reading.
std::vector<std::filesystem::path> plugin_paths(const std::filesystem::path& file,
                                                std::span<const std::string> overrides);

}  // namespace prun::recipe
