// Loads, edits and looks into a recipe.
#include "recipe/recipe.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "base/text.hpp"
#include "prun/error.hpp"
#include "recipe/diagnostics.hpp"
#include "recipe/recipe_loader.hpp"
#include "recipe/schema.hpp"
#include "recipe/value.hpp"

namespace prun::recipe {
namespace {

// ------------------------------------------------------------------- recipe

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

namespace {

// ------------------------------------------------------------------- placed

namespace fs = std::filesystem;

bool in_a_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

// Says whether a word is meant as a key: many keys are words of the language as well, and one is meant as a
// key only if it is written as one.
bool is_meant(std::string_view before, std::string_view behind) {
  const bool quoted = before.ends_with('\'') && behind.starts_with('\'');
  if (before.empty() || before.ends_with('.') || quoted) return true;
  constexpr std::string_view values[] = {" = ", " is ", " '", " \""};
  return std::any_of(std::begin(values), std::end(values),
                     [&](std::string_view each) { return behind.starts_with(each); });
}

// Returns where a text has a name that is no part of another word.
std::size_t find_name(std::string_view text, std::string_view name) {
  for (std::size_t at = text.find(name); at != text.npos; at = text.find(name, at + 1)) {
    const std::string_view before = text.substr(0, at), behind = text.substr(at + name.size());
    const bool alone =
        (before.empty() || !in_a_name(before.back())) && (behind.empty() || !in_a_name(behind.front()));
    if (alone && is_meant(before, behind)) return at;
  }
  return text.npos;
}

// Removes a start such as "strategy plugin 'zero': ", which names a plugin and no key.
std::string_view without_name(std::string_view message) {
  const std::size_t colon = message.find("': ");
  const bool named = message.substr(0, message.find('\'')).ends_with(" plugin ");
  return named && colon != message.npos ? message.substr(colon + 3) : message;
}

bool is_written(const Location& at) { return at.source && at.source->kind != Source::Kind::ours; }

// Returns, of the keys that a user wrote, the one that the message names first.
const Entry* named_first(const RecipeSection& section, std::string_view message) {
  const Entry* found = nullptr;
  std::size_t first = message.npos;
  for (const Entry& entry : section.entries()) {
    if (!is_written(entry.at) || entry.key == "plugin") continue;
    const std::size_t at = find_name(message, entry.key);
    if (at >= first) continue;
    first = at;
    found = &entry;
  }
  return found;
}

// Returns the key that a user wrote whose path the message has in quotes.
const Entry* named_by_path(const RecipeSection& section, std::string_view message) {
  for (const Entry& entry : section.entries()) {
    const auto* const text = entry.value ? std::get_if<std::string>(&*entry.value) : nullptr;
    if (text && !text->empty() && is_written(entry.at) && entry.key != "plugin" &&
        message.find(in_quotes(*text)) != message.npos)
      return &entry;
  }
  return nullptr;
}

// Says where the path that is missing was searched for, since people expect it beside the recipe.
std::string start_of_paths(const Entry& entry) {
  const auto* const text = entry.value ? std::get_if<std::string>(&*entry.value) : nullptr;
  if (!text || entry.option.type != OptionType::string || text->empty()) return {};
  const fs::path path(*text), beside = fs::path(entry.at.source->name).parent_path() / path;
  std::error_code ignored;
  if (path.is_absolute() || fs::exists(path, ignored)) return {};
  std::string said = "; paths start from the folder that prun is started in, " +
                     printable(fs::current_path(ignored).string(), 200);
  const bool in_file = entry.at.source->kind == Source::Kind::file;
  if (in_file && fs::exists(beside, ignored))
    said += "; " + in_quotes(beside.string()) + " is there";
  else
    said += fetch_advice(path);
  return said;
}

bool is_the_users(const Error& error) { return exit_code(error.code()) == exit_code(ErrorCode::bad_input); }

}  // namespace

void throw_placed(const RecipeSection& section, std::string_view key, const Error& error) {
  const Entry* entry = named_first(section, without_name(error.what()));
  if (!entry && error.code() == ErrorCode::not_found) entry = named_by_path(section, error.what());
  if (!entry) entry = section.find(key);
  const bool at_entry = entry && is_written(entry->at);
  const Location& at = at_entry ? entry->at : section.place();
  if (!is_the_users(error) || !is_written(at)) throw;
  const bool missing = at_entry && error.code() == ErrorCode::not_found;
  const std::string message = error.what() + (missing ? start_of_paths(*entry) : "");
  throw PlacedError(error.code(), render({at, message}));
}

namespace {

// ------------------------------------------------------------------- renamed keys

// A key stays in its section, or is one of a strategy now.
constexpr std::array<RenamedKey, 37> renamed_keys = {{
    {"run.layout", "\"said\"", "run.layout", "\"recipe\""},
    {"run.compare_every", "", "run.check_replicas_every", ""},
    {"run.bundle", "", "run.bucket_bytes", ""},
    {"run.changed", "", "run.allow_changed", ""},
    {"model.turned", "", "model.rope_head_dim", ""},
    {"model.turned_pairs", "", "model.rope_interleave", ""},
    {"model.unturned_every", "", "model.nope_every", ""},
    {"model.unturned_layers", "", "model.nope_layers", ""},
    {"data.documents", "\"joined\"", "data.mask_documents", "false"},
    {"data.documents", "\"apart\"", "data.mask_documents", "true"},
    {"batch.order", "\"horizontal\"", "batch.order", "\"depth_first\""},
    {"batch.order", "\"vertical\"", "batch.order", "\"breadth_first\""},
    {"precision.products", "\"fp8\"", "strategy.fp8.plugin", "\"fp8\""},
    {"precision.products", "", "", ""},
    {"precision.matmul", "\"fp8\"", "strategy.fp8.plugin", "\"fp8\""},
    {"precision.matmul", "", "", ""},
    {"precision.first_in_compute", "", "strategy.fp8.first_in_compute", ""},
    {"precision.last_in_compute", "", "strategy.fp8.last_in_compute", ""},
    {"precision.saved", "\"fp8\"", "strategy.fp8.activations", "true"},
    {"precision.saved", "", "", ""},
    {"precision.activations", "\"fp8\"", "strategy.fp8.activations", "true"},
    {"precision.activations", "", "", ""},
    {"precision.weight_codes", "\"step\"", "strategy.fp8.cache_weights", "true"},
    {"precision.weight_codes", "", "", ""},
    {"precision.cache_weights", "true", "strategy.fp8.cache_weights", "true"},
    {"precision.cache_weights", "", "", ""},
    {"precision.gathered_inputs", "\"fp8\"", "strategy.fp8.all_gather_inputs", "true"},
    {"precision.gathered_inputs", "", "", ""},
    {"precision.all_gather_inputs", "\"fp8\"", "strategy.fp8.all_gather_inputs", "true"},
    {"precision.all_gather_inputs", "", "", ""},
    {"precision.count_every", "", "strategy.fp8.statistics_every", ""},
    {"precision.statistics_every", "", "strategy.fp8.statistics_every", ""},
    {"precision.flushed_bound", "", "strategy.fp8.underflow_warning", ""},
    {"precision.underflow_warning", "", "strategy.fp8.underflow_warning", ""},
    {"optimizer.average", "0.0", "", ""},
    {"optimizer.average", "", "strategy.average.decay", ""},
    {"eval.average", "", "strategy.average.evaluate", ""},
}};

std::string setting(std::string_view path, std::string_view value) {
  return "'" + std::string(path) + (value.empty() ? "" : " = " + std::string(value)) + "'";
}

constexpr std::string_view of_strategy = "strategy.";

// Returns the plugin and the key of "strategy.NAME.KEY"; both are empty for another path.
std::pair<std::string_view, std::string_view> strategy_key(std::string_view path) {
  if (!path.starts_with(of_strategy)) return {};
  path.remove_prefix(of_strategy.size());
  return {path.substr(0, path.find('.')), path.substr(path.find('.') + 1)};
}

// Returns the key without which a recipe did not use what the strategy has now: the first one of the table.
std::string_view needed_key(std::string_view plugin) {
  const auto first = std::find_if(renamed_keys.begin(), renamed_keys.end(), [&](const RenamedKey& row) {
    return strategy_key(row.new_path).first == plugin;
  });
  return strategy_key(first->new_path).second;
}

// Returns how many strategies the settings have.
std::size_t strategies_in(const StoredSettings& settings) {
  return static_cast<std::size_t>(std::count_if(settings.begin(), settings.end(), [](const auto& one) {
    return one.first.starts_with(of_strategy) && strategy_key(one.first).second == "plugin";
  }));
}

}  // namespace

std::string RenamedKey::refusal() const {
  const std::string old = "cannot read " + std::string(value.empty() ? "key " : "") + setting(path, value);
  if (new_path.empty()) return old + ": that is the default now, which a strategy may change; leave it out";
  if (const auto [plugin, key] = strategy_key(new_path); !plugin.empty())
    return old + ": strategy '" + std::string(plugin) + "' has it now; add [[strategy]] plugin = \"" +
           std::string(plugin) + "\"" + (key == "plugin" ? "" : ", with " + setting(key, new_value)) +
           ", and leave it out here";
  return old + ": it is called " + setting(new_path, new_value) + " now; rename it";
}

const RenamedKey* find_renamed(std::string_view path, std::string_view value) {
  const auto found = std::find_if(renamed_keys.begin(), renamed_keys.end(), [&](const RenamedKey& key) {
    return key.path == path && (key.value.empty() || key.value == value);
  });
  return found == renamed_keys.end() ? nullptr : &*found;
}

std::pair<std::string, std::string> stored_setting(const std::string& path, const std::string& value) {
  const RenamedKey* const renamed = find_renamed(path, value);
  if (!renamed || renamed->new_path.empty() || !strategy_key(renamed->new_path).first.empty())
    return {path, value};
  return {std::string(renamed->new_path),
          renamed->new_value.empty() ? value : std::string(renamed->new_value)};
}

StoredSettings stored_settings(const StoredSettings& settings) {
  StoredSettings now;
  std::map<std::string_view, StoredSettings> moved;  // by the plugin of the strategy that has them
  for (const auto& [path, value] : settings) {
    const RenamedKey* const renamed = find_renamed(path, value);
    if (renamed && renamed->new_path.empty()) continue;
    const auto [plugin, key] = renamed ? strategy_key(renamed->new_path) : strategy_key("");
    if (plugin.empty())
      now.push_back(stored_setting(path, value));
    else
      moved[plugin].emplace_back(key, renamed->new_value.empty() ? value : std::string(renamed->new_value));
  }
  for (const auto& [plugin, keys] : moved) {
    const auto has = [&keys = keys](std::string_view name) {
      return std::any_of(keys.begin(), keys.end(), [&](const auto& one) { return one.first == name; });
    };
    if (!has(needed_key(plugin))) continue;
    const std::string section = std::string(of_strategy) + std::to_string(strategies_in(now)) + ".";
    if (!has("plugin")) now.emplace_back(section + "plugin", to_toml(Value(std::string(plugin))));
    for (const auto& [key, value] : keys) now.emplace_back(section + key, value);
  }
  return now;
}

}  // namespace prun::recipe
