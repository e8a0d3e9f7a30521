#include "assemble/plugin_host.hpp"

#include "recipe/loader.hpp"

namespace prun {

PluginCatalog PluginHost::catalog() {
  PluginCatalog catalog;
  catalog.schema = [this](std::string_view kind, std::string_view name) -> const Schema* {
    const PluginNote& note = this->note(kind, name);
    asked_ = parse_schema(note.options, describe(note));
    return &asked_;
  };
  catalog.names = [this](std::string_view kind) { return plugin_names(places_, kind); };
  catalog.help = [this](std::string_view kind, std::string_view name) { return note(kind, name).help; };
  return catalog;
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
  const PluginNote& known = note(kind, name);
  return PluginOptions(DefaultSection(parse_schema(known.options, describe(known))));
}

const PluginLibrary& PluginHost::library(const std::string& kind, const std::string& name) {
  std::shared_ptr<const PluginLibrary>& entry = libraries_[kind + "/" + name];
  if (!entry) entry = PluginLibrary::load(find(kind, name).path);
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

}  // namespace prun
