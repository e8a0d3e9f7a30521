// Turns a recipe file with its includes, or a text, into one tree.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/diagnostics.hpp"
#include "recipe/value.hpp"

namespace prun::recipe {

// ------------------------------------------------------------------- recipe loader

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

// ------------------------------------------------------------------- overrides
// Puts single values over a recipe from outside: `--set optimizer.lr=3e-4`, and edits from code.

// `source` is the override as the user wrote it: `prefix` (such as "--set "), then path=value. The value
// stays bare text until a schema gives it a type. A path walks tables and, by index, lists:
// `strategy.0.stage`. An index one past the end adds an item. Reports a malformed override.
void apply_override(Node& root, const std::shared_ptr<const Source>& source, std::string_view prefix,
                    Diagnostics& diagnostics);

}  // namespace prun::recipe
