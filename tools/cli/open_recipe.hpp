// Opens a recipe as a command line names it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>

#include "cli/arguments.hpp"
#include "launch/flight.hpp"
#include "launch/identity.hpp"
#include "plugin/guarded_plugin.hpp"
#include "train/assemble/assembly.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

// ------------------------------------------------------------------- overdue watch
// Finds calls into plugins that do not return.

// Calls `found`, while it lives, with each call that has lasted for longer than `limit`, once, on a thread of
// the watch.
class OverdueWatch {
 public:
  using Found = std::function<void(const PluginAndWhere& call)>;
  OverdueWatch(std::chrono::milliseconds limit, Found found);

 private:
  void run(const std::stop_token& stop) const;

  std::chrono::milliseconds limit_;
  Found found_;
  std::jthread thread_;  // declared last, so that it stops before the rest is destroyed
};

// ------------------------------------------------------------------- open recipe

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

// ------------------------------------------------------------------- open unsettled
// Opens a recipe as a command line names it, for commands that lay it out.

// Makes paths whole, so that a program that reads its checkpoint, from any folder, finds its plugins too.
Recipe with_whole_paths(const Recipe& recipe, const std::filesystem::path& file);

// Does as open_recipe(), but names its device and settles nothing else: it has `unsettled` alone.
Opened open_unsettled(const Arguments& arguments, const std::string& file);

}  // namespace prun
