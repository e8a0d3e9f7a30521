#include "train/assemble/plugin_host.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "huggingface/model_config.hpp"
#include "plugin/traits.hpp"
#include "recipe/recipe_loader.hpp"
#include "train/assemble/automatic.hpp"

namespace prun {

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

}  // namespace prun
