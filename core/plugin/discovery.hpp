// Finds where to search for plugins, which there are, and which one a recipe means. Nothing is loaded:
// everything comes from file names, permissions and notes.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plugin/note.hpp"

namespace prun {

struct SearchRequest {
  std::vector<std::filesystem::path> command_paths;  // from --plugin-path, relative to the current folder
  std::vector<std::filesystem::path> recipe_paths;   // from [plugins] path
  std::filesystem::path recipe_folder;               // start of relative entries of recipe_paths
  std::filesystem::path executable_folder;           // absolute; folder of the prun executable
};

struct SearchPlace {
  std::filesystem::path folder;  // absolute path
  std::string origin;            // what named it: "--plugin-path", "PRUN_PLUGIN_PATH", ...
};

// Returns the places in the order of search: command line, PRUN_PLUGIN_PATH, recipe, the user's data folder,
// prun's own lib folder. Environment variables count only where secure_getenv() gives them. Relative or empty
// entries in them are left out: the current folder is never searched unless a command line or recipe names
// it.
std::vector<SearchPlace> search_places(const SearchRequest& request);

struct PluginCandidate {
  std::filesystem::path path;
  std::string origin;
  std::string kind, name;             // from the file's name; empty if that does not follow the rule
  std::optional<PluginNote> note;     // absent if it could not be read
  std::string refusal;                // why it cannot be used; empty if it can
  std::filesystem::path shadowed_by;  // file of the same kind and name that was found first
  std::vector<std::string> warnings;

  bool usable() const { return refusal.empty() && shadowed_by.empty(); }
};

// Returns a text such as "usable", "refused: <why>" or "shadowed by <path>".
std::string state_of(const PluginCandidate& candidate);

// Returns every file named libprun_<kind>_<name>.so, ordered by kind and name; equal ones in search order.
std::vector<PluginCandidate> list_plugins(std::span<const SearchPlace> places);

// Returns the names of one kind, usable or not, sorted: for suggestions.
std::vector<std::string> plugin_names(std::span<const SearchPlace> places, std::string_view kind);

// Returns the notes of those of one kind that can be used, by name.
std::vector<PluginNote> usable_notes(std::span<const SearchPlace> places, std::string_view kind);

// Returns the first file of that kind and name. Throws not_found if there is none and bad_input if it cannot
// be used, even if a later place has one that could: a plugin is never replaced silently. The message lists
// every place searched, every candidate with its reason, and near names.
PluginCandidate find_plugin(std::span<const SearchPlace> places, std::string_view kind,
                            std::string_view name);

// Returns the candidate in a file given by path. A file whose name differs from what its note demands is
// refused.
PluginCandidate examine_plugin(const std::filesystem::path& path, std::string_view origin);

std::string plugin_file_name(std::string_view kind, std::string_view name);

}  // namespace prun
