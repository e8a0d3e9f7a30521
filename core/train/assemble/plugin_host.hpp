// Holds the plugins of one run: they are found once, known by their notes, and loaded when the recipe names
// them.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/core_shares.hpp"
#include "plugin/discovery.hpp"
#include "plugin/loader.hpp"
#include "recipe/placed.hpp"
#include "recipe/recipe.hpp"
#include "train/assemble/section_options.hpp"

namespace prun {

// Says which of the ranks of this host a process is.
struct LocalPlace {
  int rank = 0, ranks = 1;
  bool alike = true;  // whether all of them see the same devices: no launcher shows each its own
  // The rank is still to be started, with its share of this process's cores: devices are made as if it had
  // that.
  bool planned = false;
};

// Holds the libraries that hosts of one process share: each file is checked, loaded and digested once.
// Threads may use it at the same time.
class SharedLibraries {
 public:
  std::shared_ptr<const PluginLibrary> load(const std::filesystem::path& path);

 private:
  std::mutex mutex_;
  std::map<std::filesystem::path, std::shared_ptr<const PluginLibrary>> libraries_;
};

class PluginHost {
 public:
  explicit PluginHost(std::vector<SearchPlace> places,
                      std::shared_ptr<SharedLibraries> shared = std::make_shared<SharedLibraries>())
      : places_(std::move(places)), shared_(std::move(shared)) {}

  // Returns the catalog for the recipe reader: schemas come from the notes, and no plugin code runs except
  // where a config.json is read. The host must outlive it. Threads may use it at the same time: ranks that
  // are threads have recipes of one reader, and read some of them again with other settings.
  PluginCatalog catalog();
  // Returns the plugin a recipe means; an Error says why there is none.
  const PluginCandidate& find(std::string_view kind, std::string_view name);
  const PluginNote& note(std::string_view kind, std::string_view name) { return *find(kind, name).note; }
  // Returns the devices that name the comm plugin that goes with them, which `auto` may stand for: those with
  // a driver of their own, by name, and then those that need none. A plugin that is refused is left out.
  std::vector<std::string> automatic_devices();
  // Returns those of a kind that can be used and have that trait.
  std::vector<PluginNote> notes_with(std::string_view kind, std::string_view trait,
                                     std::string_view value) const;
  const std::vector<SearchPlace>& places() const { return places_; }
  // Returns what a config.json, or the one in a folder, says of a model plugin's options, as TOML by key;
  // without a name, of the plugin that reads it, which is given under key `plugin`.
  std::vector<std::pair<std::string, std::string>> model_options(std::string_view plugin,
                                                                 const std::filesystem::path& config);
  // Sets the place that plugins created from now on get.
  void set_local(LocalPlace local) { local_ = local; }

  // Loads the section's plugin and creates its object with the section's options. Its objections are shown at
  // their place in the recipe.
  template <class Interface>
  std::shared_ptr<Interface> create(const std::string& kind, const RecipeSection& section);
  // Creates an object of a plugin that has no section: with the options of its table in the recipe, or its
  // defaults.
  template <class Interface>
  std::shared_ptr<Interface> create(const std::string& kind, const std::string& name, const Recipe& recipe) {
    const PluginOptions options = this->options(recipe, kind, name);
    const auto made = [&] { return create<Interface>(kind, name, options.api()); };
    const std::optional<RecipeSection> table = recipe.plugin_table(kind, name);
    return table ? recipe::in_section(*table, made) : made();
  }
  template <class Interface>
  std::shared_ptr<Interface> create(const std::string& kind, const std::string& name,
                                    const OptionsApi& options) {
    OptionsApi told = options;
    told.local_rank = local_.rank;
    told.local_ranks = local_.ranks;
    const CoresOfRank cores(local_.rank, kind == "device" && local_.planned ? local_.ranks : 1);
    return library(kind, name).template create<Interface>(told);
  }
  // Returns the libraries loaded so far, for the run record.
  const std::map<std::string, std::shared_ptr<const PluginLibrary>>& loaded() const { return libraries_; }

 private:
  Schema schema_of(std::string_view kind, std::string_view name);
  Schema automatic_schema(std::string_view kind);
  std::string model_reading(const std::string& kind);
  PluginOptions options(const Recipe& recipe, const std::string& kind, const std::string& name);
  const PluginLibrary& library(const std::string& kind, const std::string& name);

  std::vector<SearchPlace> places_;
  std::shared_ptr<SharedLibraries> shared_;
  LocalPlace local_;
  std::map<std::string, PluginCandidate> found_;
  std::map<std::string, std::shared_ptr<const PluginLibrary>> libraries_;
  std::mutex reading_;                     // is held while the catalog is asked
  std::map<std::string, Schema> schemas_;  // those that the catalog has handed out, by kind and name
};

// Returns where a process searches for plugins: the command line's folders, the environment's, the recipe's
// own (a recipe that cannot be read names none), the user's, prun's own.
std::vector<SearchPlace> plugin_places(const std::filesystem::path& recipe, std::span<const std::string> sets,
                                       std::vector<std::filesystem::path> command_line);
// Returns the same for a recipe that is no file: with the folders that it names. Paths that are not absolute
// are left out, since it is unknown what they are relative to.
std::vector<SearchPlace> plugin_places_of(const std::vector<std::filesystem::path>& recipe_paths,
                                          std::vector<std::filesystem::path> command_line);

template <class Interface>
std::shared_ptr<Interface> PluginHost::create(const std::string& kind, const RecipeSection& section) {
  return recipe::in_section(section,
                            [&] { return create<Interface>(kind, section.plugin(), options_of(section)); });
}

}  // namespace prun
