// Loads, edits and looks into a recipe.
#include "recipe/recipe.hpp"

#include <algorithm>
#include <filesystem>

#include "base/hub_name.hpp"
#include "base/text.hpp"
#include "prun/error.hpp"
#include "recipe/catalog.hpp"
#include "recipe/core_schema.hpp"
#include "recipe/diagnostics.hpp"
#include "recipe/node.hpp"
#include "recipe/overrides.hpp"
#include "recipe/recipe_loader.hpp"
#include "recipe/value.hpp"

namespace prun::recipe {
namespace {

// ------------------------------------------------------------ from config

// Reads options of the model from a config.json: keys that the recipe leaves out.

// Returns the value of a key that is a text; it is empty if the value is none or missing.
std::string text_at(const Node& table, std::string_view key) {
  const Member* const member = table.find(key);
  if (!member) return {};
  if (member->value.kind == Node::Kind::string) return member->value.text;
  if (member->value.kind != Node::Kind::bare) return {};
  const std::optional<Value> value = parse_value(OptionType::string, member->value.text);
  return value ? std::get<std::string>(*value) : std::string();
}

bool has_config(const std::string& folder) {
  std::error_code ignored;
  return !folder.empty() && std::filesystem::is_regular_file(folder + "/config.json", ignored);
}

bool is_missing(const std::string& path) {
  std::error_code ignored;
  return !path.empty() && !std::filesystem::exists(path, ignored);
}

Member member_from(const std::string& file, const std::string& key, const std::string& text,
                   std::size_t order) {
  const std::string line = key + " = " + text;
  const Location at{
      std::make_shared<const Source>(Source{file + ", " + line, line, order, Source::Kind::override_}), 1, 1,
      static_cast<std::uint32_t>(key.size())};
  Member member{key, at, {}};
  member.value.kind = Node::Kind::bare;
  member.value.at = at;
  member.value.text = text;
  return member;
}

// Adds to [model] what the file that `model.config` names, or the one in a folder that `model.init` names,
// says, the plugin included. Problems go to `diagnostics`; `sources` counts the texts that values come from.
void take_config(Node& root, const PluginCatalog& catalog, std::size_t& sources, Diagnostics& diagnostics) {
  Member* const model = root.find("model");
  if (!model || model->value.kind != Node::Kind::table || !catalog.model_options) return;
  Node& table = model->value;
  const std::string init = text_at(table, "init"), plugin = text_at(table, "plugin");
  const bool named = !text_at(table, "config").empty();
  if (!named && plugin.empty() && is_missing(init))
    diagnostics.add(table.find("init")->at, "there is no folder " + in_quotes(init) + fetch_advice(init));
  if (!named && !has_config(init)) return;
  const std::string key = named ? "config" : "init", file = text_at(table, key);
  const std::string shown = has_config(file) ? (std::filesystem::path(file) / "config.json").string() : file;
  try {
    if (!plugin.empty() && !catalog.schema("model", plugin)) return;  // reported with the section
    for (const auto& [option, text] : catalog.model_options(plugin, file))
      if (!table.find(option)) table.members.push_back(member_from(shown, option, text, sources));
    ++sources;
  } catch (const Error& error) {
    diagnostics.add(table.find(key)->at, error.what() + (is_missing(file) ? fetch_advice(file) : ""));
  }
}

const Entry& must_find(const Entry* entry, std::string_view path) {
  PRUN_CHECK(entry, "no recipe option is called ", in_quotes(path));
  return *entry;
}

// Says whether `path` is in the section, or is it.
bool in_section(const SectionInfo& section, std::string_view path) {
  return keys_collide(section.path, path);
}

}  // namespace

std::span<const Entry> RecipeSection::entries() const {
  return std::span(resolved_->entries).subspan(info().first, info().count);
}

const Entry* RecipeSection::find(std::string_view key) const {
  const std::span<const Entry> all = entries();
  const auto found = std::find_if(all.begin(), all.end(), [key](const Entry& e) { return e.key == key; });
  return found == all.end() ? nullptr : &*found;
}

const Entry& RecipeSection::entry(std::string_view key) const {
  return must_find(find(key), path() + "." + std::string(key));
}

Recipe Recipe::load(const std::filesystem::path& file, std::span<const std::string> overrides,
                    PluginCatalog catalog) {
  Diagnostics diagnostics;
  LoadedTree loaded = load_tree(file, diagnostics);
  Input input{std::move(loaded.root), std::move(loaded.main), loaded.sources, std::move(catalog)};
  return build(std::move(input), overrides, Source::Kind::override_, diagnostics);
}

Recipe Recipe::parse(std::string text, std::string name, std::span<const std::string> overrides,
                     PluginCatalog catalog) {
  Diagnostics diagnostics;
  LoadedTree loaded = load_tree_from_text(std::move(text), std::move(name), diagnostics);
  Input input{std::move(loaded.root), std::move(loaded.main), loaded.sources, std::move(catalog)};
  return build(std::move(input), overrides, Source::Kind::override_, diagnostics);
}

Recipe Recipe::with(std::string_view path, std::string_view value) const {
  Diagnostics diagnostics;
  const std::string edit = std::string(path) + "=" + std::string(value);
  return build(Input(*input_), std::span(&edit, 1), Source::Kind::ours, diagnostics);
}

Recipe Recipe::build(Input input, std::span<const std::string> overrides, Source::Kind kind,
                     Diagnostics& diagnostics) {
  const std::string_view prefix = kind == Source::Kind::ours ? "set by prun: " : "--set ";
  PRUN_CHECK(input.catalog.schema && input.catalog.names && input.catalog.help,
             "a recipe needs a plugin catalog");
  for (const std::string& text : overrides) {
    const std::string written = std::string(prefix) + text;
    const auto source = std::make_shared<const Source>(Source{written, written, input.sources++, kind});
    apply_override(input.tree, source, prefix, diagnostics);
  }
  // Values that cannot be read would look like missing keys.
  diagnostics.throw_if_any();
  take_config(input.tree, input.catalog, input.sources, diagnostics);
  diagnostics.throw_if_any();
  Recipe recipe;
  recipe.resolved_ =
      std::make_shared<const ResolvedRecipe>(resolve(input.tree, input.main, input.catalog, diagnostics));
  diagnostics.throw_if_any();
  recipe.input_ = std::make_shared<const Input>(std::move(input));
  return recipe;
}

const Entry* Recipe::find(std::string_view path) const {
  const auto found = resolved_->by_path.find(path);
  return found == resolved_->by_path.end() ? nullptr : &resolved_->entries[found->second];
}

const Entry& Recipe::entry(std::string_view path) const { return must_find(find(path), path); }

std::optional<RecipeSection> Recipe::find_section(std::string_view path) const {
  const auto& all = resolved_->sections;
  const auto found =
      std::find_if(all.begin(), all.end(), [path](const SectionInfo& s) { return s.path == path; });
  if (found == all.end()) return std::nullopt;
  return RecipeSection(resolved_, static_cast<std::size_t>(found - all.begin()));
}

RecipeSection Recipe::section(std::string_view path) const {
  const std::optional<RecipeSection> found = find_section(path);
  PRUN_CHECK(found, "the recipe has no section ", in_quotes(path));
  return *found;
}

std::optional<RecipeSection> Recipe::plugin_table(std::string_view kind, std::string_view name) const {
  for (const recipe::SectionRule& rule : recipe::core_sections())
    if (rule.table_kind == kind) return find_section(rule.name + "." + std::string(name));
  return std::nullopt;
}

std::vector<RecipeSection> Recipe::sections(std::string_view name) const {
  std::vector<RecipeSection> found;
  for (std::size_t i = 0; i < resolved_->sections.size(); ++i)
    if (resolved_->sections[i].rule->name == name) found.push_back(RecipeSection(resolved_, i));
  return found;
}

std::vector<RecipeSection> Recipe::all_sections() const {
  std::vector<RecipeSection> all;
  for (std::size_t i = 0; i < resolved_->sections.size(); ++i) all.push_back(RecipeSection(resolved_, i));
  return all;
}

Problem Recipe::problem(std::string_view path, std::string message) const {
  const Entry* const entry = find(path);
  if (entry && entry->at.source) return {entry->at, std::move(message)};
  Location nearest_place{input_->main};
  std::size_t longest = 0;
  for (const SectionInfo& section : resolved_->sections) {
    const bool inside = section.path.size() <= path.size() && in_section(section, path);
    if (!inside || !section.at.source || section.path.size() < longest) continue;
    nearest_place = section.at;
    longest = section.path.size();
  }
  return {nearest_place, std::move(message)};
}

}  // namespace prun::recipe
