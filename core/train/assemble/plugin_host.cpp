#include "train/assemble/plugin_host.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <set>

#include "base/text.hpp"
#include "huggingface/config.hpp"
#include "plugin/traits.hpp"
#include "recipe/recipe_loader.hpp"
#include "train/assemble/batch_arithmetic.hpp"
#include "train/assemble/process_memory.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- automatic

// Says whether a library can be opened. It stays open: the caller is about to use it.
bool can_open(std::string_view library) {
  return library.empty() || ::dlopen(std::string(library).c_str(), RTLD_LAZY | RTLD_LOCAL) != nullptr;
}

// Returns an option of the recipe's device that this one does not have, or the empty text.
std::string unknown_option(const Recipe& recipe, const PluginNote& device) {
  const Schema known = parse_schema(device.options, describe(device));
  for (const auto& entry : recipe.section("device").entries())
    if (entry.at.source && entry.declared_by != "core" && !known.find(entry.key)) return entry.key;
  return "";
}

// Returns the plugins of all axes with more than one rank, once each.
std::set<std::string> comms_of(const Recipe& recipe, PluginHost& plugins) {
  const Mesh mesh = mesh_of(recipe);
  std::set<std::string> names;
  for (const Axis& axis : mesh.axes())
    if (axis.extent > 1) names.insert(comm_of_axis(recipe, plugins, axis.name));
  return names;
}

Recipe named(const Recipe& recipe, std::string_view device) { return recipe.with("device.plugin", device); }

// Throws an Error that says why this device cannot be used here.
void try_device(const Recipe& recipe, PluginHost& plugins, const std::string& device, LocalPlace local) {
  check_driver(plugins, device);
  const auto made = plugins.create<DeviceInterface>("device", recipe.section("device"));
  DeviceInfo info;
  raise(made->info(&info));
  if (info.absent) throw_error(ErrorCode::unsupported, info.name.view());
  if (local.alike && info.units > 0 && local.ranks > info.units)
    throw_error(ErrorCode::unsupported, info.units, " here for ", local.ranks, " ranks");
  for (const std::string& comm : comms_of(recipe, plugins)) make_comm(recipe, info, plugins, comm);
}

// Says why the recipe does not run on this device here, or returns nothing.
std::string problem_with(const Recipe& recipe, PluginHost& plugins, const std::string& device,
                         LocalPlace local) {
  try {
    const std::string unknown = unknown_option(recipe, plugins.note("device", device));
    if (!unknown.empty()) return detail::concat("it has no option '", unknown, "'");
    try_device(named(recipe, device), plugins, device, local);
    return "";
  } catch (const Error& error) {
    return std::string(first_line(error.what()));
  }
}

std::string said_of(const Recipe& recipe, PluginHost& plugins, const std::string& device) {
  std::string text = detail::concat("device ", device);
  for (const std::string& comm : comms_of(recipe, plugins)) text += " and comm " + comm;
  return text;
}

}  // namespace

void check_driver(PluginHost& plugins, const std::string& device) {
  const std::string_view driver = trait_of(plugins.note("device", device), "driver");
  if (!can_open(driver)) throw_error(ErrorCode::unsupported, "there is no ", driver, " here");
}

namespace {

// Says whether the recipe lets several ranks have one unit of its device.
bool shares_units(const Recipe& recipe, PluginHost& plugins) {
  const RecipeSection device = recipe.section("device");
  const std::string option(trait_of(plugins.note("device", device.plugin()), "shared"));
  return !option.empty() && device.has(option) && device.flag(option);
}

// Returns the comm plugin of the device that runs everywhere; it is empty if there is none.
std::string comm_of_last(PluginHost& plugins) {
  const std::vector<std::string> devices = plugins.automatic_devices();
  return devices.empty() ? "" : std::string(trait_of(plugins.note("device", devices.back()), "comm"));
}

}  // namespace

std::string comm_of_device(PluginHost& plugins, const std::string& device) {
  const std::string_view own = trait_of(plugins.note("device", device), "comm");
  if (!own.empty()) return std::string(own);
  const std::string last = comm_of_last(plugins);
  if (last.empty())
    throw_error(ErrorCode::bad_input, "comm: no device plugin says which comm plugin goes with device '",
                device, "'; name one in [comm], default = \"…\"");
  return last;
}

std::string automatic_comm(const Recipe& recipe, PluginHost& plugins) {
  const std::string last = shares_units(recipe, plugins) ? comm_of_last(plugins) : "";
  return last.empty() ? comm_of_device(plugins, recipe.section("device").plugin()) : last;
}

DeviceChoice choose_device(const Recipe& recipe, PluginHost& plugins, LocalPlace local) {
  if (recipe.section("device").plugin() != automatic) return {recipe, ""};
  plugins.set_local(local);
  std::string against;
  const std::vector<std::string> devices = plugins.automatic_devices();
  for (const std::string& device : devices) {
    const bool last = device == devices.back();
    const std::string problem = last ? "" : problem_with(recipe, plugins, device, local);
    if (problem.empty()) {
      const Recipe chosen = named(recipe, device);
      return {chosen, said_of(chosen, plugins, device) + against};
    }
    against += detail::concat("; device ", device, ": ", problem);
  }
  throw_error(ErrorCode::bad_input,
              "device.plugin: `auto` finds no device plugin that it may stand for; see prun plugins list");
}

namespace {

// ------------------------------------------------------------------- section options

// Throws an error that the plugin's author must correct: it reaches the user under the plugin's name.
template <class... Parts>
[[noreturn]] void misread(std::string_view key, const Parts&... parts) {
  throw_error(ErrorCode::bad_input, "option ", in_quotes(key), " ", parts...);
}

[[noreturn]] void undeclared(std::string_view key, const std::vector<std::string>& keys) {
  misread(key, "is read by the plugin and not declared by it", did_you_mean(key, keys));
}

// Returns null if the key is optional and absent.
const recipe::Value* find_value(const RecipeSection& section, std::string_view key) {
  if (const recipe::Entry* const entry = section.find(key)) return entry->value ? &*entry->value : nullptr;
  std::vector<std::string> keys;
  for (const recipe::Entry& entry : section.entries()) keys.push_back(entry.key);
  undeclared(key, keys);
}

const recipe::Value* find_value(const DefaultSection& section, std::string_view key) {
  if (const recipe::Option* const option = section.schema().find(key)) {
    if (option->presence == recipe::Presence::required) misread(key, "must be given: it has no default");
    return option->presence == recipe::Presence::has_default ? &option->default_value : nullptr;
  }
  std::vector<std::string> keys;
  for (const recipe::Option& option : section.schema().options()) keys.push_back(option.key);
  undeclared(key, keys);
}

const recipe::Value* find_value(const Recipe& recipe, std::string_view key) {
  const recipe::Entry* const entry = recipe.find(key);
  return entry && entry->value ? &*entry->value : nullptr;
}

template <class Section>
const recipe::Value& value_of(const Section& section, std::string_view key) {
  const recipe::Value* const value = find_value(section, key);
  if (!value) misread(key, "is absent, as its schema allows; the plugin must ask has() first");
  return *value;
}

// The words are in the order of recipe::Value.
constexpr const char* words[] = {"an int",         "a float",          "a bool",           "a text",
                                 "a list of ints", "a list of floats", "a list of strings"};
static_assert(std::size(words) == std::variant_size_v<recipe::Value>);

template <class T>
const T& typed(const recipe::Value& value, std::string_view key) {
  if (const T* const found = std::get_if<T>(&value)) return *found;
  misread(key, "is declared as ", words[value.index()], " and read by the plugin as ",
          words[recipe::Value(T()).index()]);
}

// Calls visit with a list option, whatever its elements; of names, one may stand alone.
template <class Visit>
void with_list(const recipe::Value& value, std::string_view key, Visit&& visit) {
  if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&value))
    visit(*integers);
  else if (const auto* numbers = std::get_if<std::vector<double>>(&value))
    visit(*numbers);
  else if (const auto* name = std::get_if<std::string>(&value))
    visit(std::vector{*name});
  else
    visit(typed<std::vector<std::string>>(value, key));
}

// Returns element `index` of a list of texts, or the single text.
const std::string& text_at(const recipe::Value& value, std::string_view key, std::uint64_t index) {
  const auto* name = std::get_if<std::string>(&value);
  return name && index == 0 ? *name : typed<std::vector<std::string>>(value, key).at(index);
}

// Makes the table of calls for either kind of section.
template <class Section>
struct Calls {
  static const recipe::Value& at(void* section, Text key) {
    return value_of(*static_cast<const Section*>(section), key.view());
  }
  static Status integer(void* section, Text key, std::int64_t* value) {
    return guard([&] { *value = typed<std::int64_t>(at(section, key), key.view()); });
  }
  static Status number(void* section, Text key, double* value) {
    return guard([&] { *value = typed<double>(at(section, key), key.view()); });
  }
  static Status flag(void* section, Text key, bool* value) {
    return guard([&] { *value = typed<bool>(at(section, key), key.view()); });
  }
  static Status text(void* section, Text key, Text* value) {
    return guard([&] { *value = Text(typed<std::string>(at(section, key), key.view())); });
  }
  static Status list_size(void* section, Text key, std::uint64_t* size) {
    return guard(
        [&] { with_list(at(section, key), key.view(), [&](const auto& list) { *size = list.size(); }); });
  }
  static Status list_number(void* section, Text key, std::uint64_t index, double* value) {
    return guard([&] {
      with_list(at(section, key), key.view(), [&](const auto& list) {
        if constexpr (requires { static_cast<double>(list.at(index)); })
          *value = list.at(index);
        else
          misread(key.view(), "is declared as a list of strings and read by the plugin as one of numbers");
      });
    });
  }
  static Status list_text(void* section, Text key, std::uint64_t index, Text* value) {
    return guard([&] { *value = Text(text_at(at(section, key), key.view(), index)); });
  }
  static Status has(void* section, Text key, bool* given) {
    return guard([&] { *given = find_value(*static_cast<const Section*>(section), key.view()) != nullptr; });
  }
};

}  // namespace

std::vector<std::string> DefaultSection::required() const {
  std::vector<std::string> keys;
  for (const recipe::Option& option : schema_.options())
    if (option.presence == recipe::Presence::required) keys.push_back(option.key);
  return keys;
}

OptionsApi options_of(const RecipeSection& section) { return options_table<Calls<RecipeSection>>(&section); }
OptionsApi options_of(const Recipe& recipe) { return options_table<Calls<Recipe>>(&recipe); }
OptionsApi options_of(const DefaultSection& section) {
  return options_table<Calls<DefaultSection>>(&section);
}

// ------------------------------------------------------------------- plugin host

PluginCatalog PluginHost::catalog() {
  PluginCatalog catalog;
  catalog.schema = [this](std::string_view kind, std::string_view name) -> const Schema* {
    const std::scoped_lock lock(reading_);
    const std::string key = detail::concat(kind, " ", name);
    if (const auto known = schemas_.find(key); known != schemas_.end()) return &known->second;
    const bool is_any = name == automatic && (kind == "device" || kind == "comm");
    return &schemas_.emplace(key, is_any ? automatic_schema(kind) : schema_of(kind, name)).first->second;
  };
  catalog.names = [this](std::string_view kind) { return plugin_names(places_, kind); };
  catalog.model_options = [this](std::string_view name, const std::string& path) {
    const std::scoped_lock lock(reading_);
    return model_options(name, path);
  };
  catalog.help = [this](std::string_view kind, std::string_view name) {
    const std::scoped_lock lock(reading_);
    return note(kind, name).help;
  };
  return catalog;
}

Schema PluginHost::schema_of(std::string_view kind, std::string_view name) {
  const PluginNote& known = note(kind, name);
  return parse_schema(known.options, describe(known));
}

// Returns, until it is known which device it stands for, what any of them knows. A comm plugin has options of
// its own under its name.
Schema PluginHost::automatic_schema(std::string_view kind) {
  std::vector<recipe::Option> all;
  if (kind == "comm") return Schema(all);
  for (const std::string& name : automatic_devices()) {
    const Schema schema = schema_of(kind, name);
    for (const recipe::Option& option : schema.options())
      if (std::none_of(all.begin(), all.end(), [&](const recipe::Option& known) {
            return recipe::keys_collide(known.key, option.key);
          }))
        all.push_back(option);
  }
  return Schema(all);
}

std::vector<std::string> PluginHost::automatic_devices() {
  std::vector<std::string> devices, without_driver;
  for (const std::string& name : plugin_names(places_, "device")) try {
      const PluginNote& known = note("device", name);
      if (trait_of(known, "comm").empty()) continue;
      (trait_of(known, "driver").empty() ? without_driver : devices).push_back(name);
    } catch (const Error&) {
      continue;
    }
  devices.insert(devices.end(), without_driver.begin(), without_driver.end());
  return devices;
}

std::vector<PluginNote> PluginHost::notes_with(std::string_view kind, std::string_view trait,
                                               std::string_view value) const {
  std::vector<PluginNote> notes = usable_notes(places_, kind);
  std::erase_if(notes, [&](const PluginNote& note) { return trait_of(note, trait) != value; });
  return notes;
}

namespace {

// Models of pictures and texts hold a model of texts: that is read where no plugin reads the whole.
ConfigFile read_by_some(ConfigFile file, const std::vector<PluginNote>& models) {
  const auto is_read = [&](const std::string& kind) {
    return std::any_of(models.begin(), models.end(),
                       [&](const PluginNote& note) { return trait_lists(note, "reads", kind); });
  };
  const std::string held = file.kind_of_text();
  if (!held.empty() && is_read(held) && !is_read(file.kind())) return file.of_text();
  return file;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> PluginHost::model_options(
    std::string_view plugin, const std::filesystem::path& config) {
  const ConfigFile file = read_by_some(ConfigFile(config), usable_notes(places_, "model"));
  std::vector<std::pair<std::string, std::string>> options;
  std::string name(plugin);
  if (name.empty()) {
    name = model_reading(file.kind());
    options.emplace_back("plugin", recipe::to_toml(name));
  }
  for (const auto& [key, value] : options_from(file, library("model", name)))
    options.emplace_back(key, recipe::to_toml(value));
  return options;
}

// Names the plugin that reads a kind; a plugin that is refused reads nothing.
std::string PluginHost::model_reading(const std::string& kind) {
  std::vector<std::string> known;
  for (const std::string& name : plugin_names(places_, "model")) try {
      const PluginNote& model = note("model", name);
      if (trait_lists(model, "reads", kind)) return name;
      for (const std::string_view other : split(trait_of(model, "reads"), ','))
        if (!other.empty()) known.emplace_back(other);
    } catch (const Error&) {
      continue;
    }
  const std::string near = nearest(kind, known);
  throw_error(ErrorCode::bad_input, "no model plugin reads a config.json of model_type ", in_quotes(kind),
              "; there are some for ", join(known, ","),
              near.empty() ? "" : ", of which the nearest is " + in_quotes(near));
}

const PluginCandidate& PluginHost::find(std::string_view kind, std::string_view name) {
  const std::string key = std::string(kind) + "/" + std::string(name);
  const auto known = found_.find(key);
  if (known != found_.end()) return known->second;
  return found_.emplace(key, find_plugin(places_, kind, name)).first->second;
}

PluginOptions PluginHost::options(const Recipe& recipe, const std::string& kind, const std::string& name) {
  if (const std::optional<RecipeSection> table = recipe.plugin_table(kind, name))
    return PluginOptions(*table);
  return PluginOptions(DefaultSection(schema_of(kind, name)));
}

std::shared_ptr<const PluginLibrary> SharedLibraries::load(const std::filesystem::path& path) {
  const std::scoped_lock lock(mutex_);
  std::shared_ptr<const PluginLibrary>& entry = libraries_[path];
  if (!entry) entry = PluginLibrary::load(path);
  return entry;
}

const PluginLibrary& PluginHost::library(const std::string& kind, const std::string& name) {
  std::shared_ptr<const PluginLibrary>& entry = libraries_[kind + "/" + name];
  if (!entry) entry = shared_->load(find(kind, name).path);
  return *entry;
}

std::vector<SearchPlace> plugin_places(const std::filesystem::path& recipe, std::span<const std::string> sets,
                                       std::vector<std::filesystem::path> command_line) {
  SearchRequest request;
  request.command_paths = std::move(command_line);
  request.executable_folder = std::filesystem::canonical("/proc/self/exe").parent_path();
  if (!recipe.empty()) {
    request.recipe_folder = std::filesystem::absolute(recipe).parent_path();
    request.recipe_paths = recipe::plugin_paths(recipe, sets);
  }
  return search_places(request);
}

std::vector<SearchPlace> plugin_places_of(const std::vector<std::filesystem::path>& recipe_paths,
                                          std::vector<std::filesystem::path> command_line) {
  SearchRequest request;
  request.command_paths = std::move(command_line);
  request.executable_folder = std::filesystem::canonical("/proc/self/exe").parent_path();
  request.recipe_folder = "/";
  std::copy_if(recipe_paths.begin(), recipe_paths.end(), std::back_inserter(request.recipe_paths),
               [](const std::filesystem::path& path) { return path.is_absolute(); });
  return search_places(request);
}

namespace {

// ------------------------------------------------------------------- trait settings

bool has_setting(const RecipeSection& section, const std::string& key, const std::string& value) {
  const recipe::Entry* const entry = section.find(key);
  const auto* const text = entry && entry->value ? std::get_if<std::string>(&*entry->value) : nullptr;
  return text && *text == value;
}

// Returns the strategy that splits this over an axis of several ranks, one that is named or any.
std::string strategy_that_splits(const Recipe& recipe, PluginHost& plugins, std::string_view what,
                                 const std::string& axis = "") {
  const Mesh mesh = mesh_of(recipe);
  for (const RecipeSection& other : recipe.strategies()) {
    if (!trait_lists(plugins.note("strategy", other.plugin()), "splits", what)) continue;
    for (const std::string& own : axes_named(other))
      if ((axis.empty() || own == axis) && mesh.find(own) != no_axis && mesh.extent(mesh.find(own)) > 1)
        return other.plugin();
  }
  return "";
}

// Says what is wrong with such a strategy, if anything is; `setting` is in the recipe's words.
std::string problem_over_batch(const Recipe& recipe, PluginHost& plugins, const RecipeSection& section,
                               const std::string& setting) {
  const std::vector<std::string> axes = axes_named(section);
  if (axes.size() != 1)
    return "cannot use " + setting + " over several axes (" + join(axes, ", ") +
           "); name one over which the batch is split, or leave the setting out";
  const Mesh mesh = mesh_of(recipe);
  const AxisId axis = mesh.find(axes.front());
  if (axis == no_axis || mesh.extent(axis) == 1) return "";
  if (strategy_that_splits(recipe, plugins, "batch", axes.front()).empty())
    return "cannot use " + setting + " over axis '" + axes.front() +
           "': no strategy splits the batch over it; name an axis of strategy data, or leave the setting out";
  if (const std::string other = strategy_that_splits(recipe, plugins, "sequence"); !other.empty())
    return "cannot use " + setting + " with strategy '" + other +
           "', which splits sequences; leave one of the two out";
  return "";
}

}  // namespace

std::vector<std::pair<std::string, std::string>> settings_in(std::string_view trait) {
  std::vector<std::pair<std::string, std::string>> settings;
  for (const std::string_view item : split(trait, ',')) {
    const std::size_t colon = item.find(':');
    if (colon != std::string_view::npos)
      settings.emplace_back(trim(item.substr(0, colon)), trim(item.substr(colon + 1)));
  }
  return settings;
}

Recipe with_untrained_settings(const Recipe& recipe, PluginHost& plugins) {
  Recipe result = recipe;
  for (const RecipeSection& section : recipe.strategies())
    for (const auto& [key, value] :
         settings_in(trait_of(plugins.note("strategy", section.plugin()), "untrained")))
      if (!has_setting(section, key, value)) result = result.with(section.path() + "." + key, value);
  return result;
}

void check_over_batch(const Recipe& recipe, PluginHost& plugins, const RecipeSection& section,
                      Diagnostics& problems) {
  const PluginNote& note = plugins.note("strategy", section.plugin());
  for (const auto& [key, value] : settings_in(trait_of(note, "over_batch"))) {
    if (!has_setting(section, key, value)) continue;
    const std::string path = section.path() + "." + key;
    const std::string problem =
        problem_over_batch(recipe, plugins, section, detail::concat(key, " = \"", value, "\""));
    if (!problem.empty()) problems.add(recipe.problem(path, problem));
  }
}

}  // namespace prun
