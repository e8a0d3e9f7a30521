// Opens a recipe as a command line names it.
#pragma once

#include <memory>
#include <optional>

#include "cli/arguments.hpp"
#include "cli/overdue_watch.hpp"
#include "launch/flight.hpp"
#include "launch/identity.hpp"
#include "train/assemble/assembly.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

// Holds a recipe with the plugins it can name.
struct Opened {
  std::unique_ptr<PluginHost> plugins;
  std::optional<Recipe> recipe;            // leaves nothing to `auto`
  std::optional<Recipe> unsettled;         // names its device, and leaves open what predicted times settle
  std::string chosen;                      // says what was chosen where the recipe left something open
  std::unique_ptr<FlightRecorder> flight;  // records what a rank does that is alone
  // Ends the process where a plugin does not come back within run.hang_limit.
  std::unique_ptr<OverdueWatch> watch;
  bool imported = false;  // says that it is from a checkpoint that nobody trained

  // An imported model has no sequence length of its own.
  bool lacks_length() const { return imported && recipe->integer("model.seq") == 1; }
};

// `rank` is the one that this process is; without it this host is taken to have all ranks.
Opened open_recipe(const Arguments& arguments, const std::string& file,
                   const std::optional<Identity>& rank = std::nullopt);

// Opens a recipe given as text; `file` says where it is from, and its paths are relative to that folder.
Opened open_recipe_text(const Arguments& arguments, std::string text, const std::string& file);

// Opens the recipe that a checkpoint, or the latest of a run's folder, was saved with. An imported checkpoint
// has a model alone: it gets one rank, no data, and sequences of one token where `model.seq` is not set.
Opened open_checkpoint(const Arguments& arguments, const std::string& where,
                       const std::optional<Identity>& rank = std::nullopt);

// Returns where plugins of a checkpoint's recipe are looked for, including the folders that it names.
std::vector<SearchPlace> plugin_places_of_checkpoint(const Arguments& arguments,
                                                     const std::filesystem::path& folder);

// Says on standard error where a run's folder has checkpoints and does not say which is its latest.
void say_without_latest(const std::string& where);

// Returns the recipe's program and plan, or throws a refusal that says what would fit.
Assembly assemble(const Opened& opened);

// Returns the recipe for ranks that are threads of a process: each computes with one thread, and none is
// pinned.
Recipe with_thread_ranks(Recipe recipe);

}  // namespace prun
