// Holds the plugins of one run: they are found once, known by their notes, and loaded when the recipe names
// them.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/machine.hpp"
#include "plugin/discovery.hpp"
#include "plugin/loader.hpp"
#include "prun/options.hpp"
#include "recipe/recipe.hpp"

namespace prun {

// ------------------------------------------------------------------- section options
// Shows a recipe section, or a schema's defaults, to a plugin.

// Gives every option of a schema at its default, for plugins that are tried without a recipe.
class DefaultSection {
 public:
  explicit DefaultSection(Schema schema) : schema_(std::move(schema)) {}
  const Schema& schema() const { return schema_; }
  std::vector<std::string> required() const;

 private:
  Schema schema_;
};

// Returns the options; what they are made from must outlive them.
OptionsApi options_of(const RecipeSection& section);
OptionsApi options_of(const DefaultSection& section);
// Returns the values of a recipe by their paths. Options::has() is false for a path without a value.
OptionsApi options_of(const Recipe& recipe);

// Gives the options of a plugin that a recipe names without a section for it: those of its table
// ([comm.ucx]), or its defaults.
class PluginOptions {
 public:
  explicit PluginOptions(RecipeSection table) : section_(std::move(table)) {}
  explicit PluginOptions(DefaultSection defaults) : section_(std::move(defaults)) {}

  // Returns the options, which live as long as this.
  OptionsApi api() const {
    return std::visit([](const auto& section) { return options_of(section); }, section_);
  }

 private:
  std::variant<RecipeSection, DefaultSection> section_;
};

// ------------------------------------------------------------------- plugin host

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

// ------------------------------------------------------------------- automatic
// Decides what `auto` stands for: the device of a recipe that leaves it open, by what this machine has, and
// the comm plugin of an axis, by the device.

inline constexpr std::string_view automatic = "auto";
// Our launcher tells its ranks by this variable what it has chosen: none needs to ask a device that it will
// not use, whose driver would stay in its memory.
inline constexpr const char* chosen_device_variable = "PRUN_CHOSEN_DEVICE";

// Throws unsupported if the driver that a device names cannot be opened here.
void check_driver(PluginHost& plugins, const std::string& device);

// Returns the comm plugin that goes with a device: the one it names, or that of the device that runs
// everywhere.
std::string comm_of_device(PluginHost& plugins, const std::string& device);
// Returns the comm plugin for the recipe's device, or that of the device that runs everywhere if several
// ranks may have one unit.
std::string automatic_comm(const Recipe& recipe, PluginHost& plugins);

struct DeviceChoice {
  Recipe recipe;     // recipe that names its device
  std::string said;  // the choice and its reason in one line; empty if the recipe leaves nothing open
};

// Chooses a device: its driver must be there, it must have a unit for a rank in that place and know all
// options that the recipe gives the device, and each axis must have a comm plugin that goes with it.
DeviceChoice choose_device(const Recipe& recipe, PluginHost& plugins, LocalPlace local);

// ------------------------------------------------------------------- trait settings
// Reads settings of a strategy's options that its traits list: those that hold where nothing is trained, and
// those that are for ranks with different sequences alone.

// Parses "stage:1, stage:2" of a trait.
std::vector<std::pair<std::string, std::string>> settings_in(std::string_view trait);

// Returns the recipe of programs that evaluate or make text: strategies take the settings of their traits
// `untrained`.
Recipe with_untrained_settings(const Recipe& recipe, PluginHost& plugins);

// Checks a strategy with a setting of its trait `over_batch`: it names one axis, over which another strategy
// splits the batch, and none splits sequences.
void check_over_batch(const Recipe& recipe, PluginHost& plugins, const RecipeSection& section,
                      Diagnostics& problems);

}  // namespace prun
