// Holds a recipe that has been checked: every option of core and plugins has a value, of its declared type
// and range, and knows where it came from.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prun/error.hpp"
#include "recipe/diagnostics.hpp"
#include "recipe/schema.hpp"
#include "recipe/value.hpp"

// ------------------------------------------------------------------- recipe

namespace prun::recipe {

// Describes one option of one section of a recipe.
struct Entry {
  std::string path;  // path such as "strategy.0.stage"
  std::string key;   // key such as "stage"
  Option option;
  std::string declared_by;     // who declares it: "core" or "strategy plugin 'zero'"
  std::optional<Value> value;  // nothing if it is optional and absent
  Location at;                 // place of its key; no source if the value is the default
};

// Describes one table of the recipe; its entries are a range of ResolvedRecipe::entries.
struct SectionInfo {
  std::string path;  // path such as "model", "strategy.0"
  const SectionRule* rule = nullptr;
  std::string plugin;  // name of its plugin, or empty
  Location at;         // place of its header; no source if the recipe does not have it
  std::size_t first = 0;
  std::size_t count = 0;
};

struct ResolvedRecipe {
  std::vector<SectionInfo> sections;  // sections in the order of core_sections(), list items in theirs
  std::vector<Entry> entries;
  std::vector<std::string> emptied;  // lists written as [] that would otherwise have one item
  std::map<std::string, std::size_t, std::less<>> by_path;  // numbers into entries
};

// Checks a tree against the schemas of core and plugins, and gives every option its value. It reports every
// problem there is, not the first. The result is complete only if there was none. `main` is where a problem
// of a section that is not written is shown.
ResolvedRecipe resolve(const Node& root, const std::shared_ptr<const Source>& main,
                       const PluginCatalog& catalog, Diagnostics& diagnostics);

// Returns values by key, for a class that can find an entry. Reading a key that no schema declares, or with
// another type than declared, is a bug of the caller (internal error); so is reading an optional value that
// is absent.
template <class Self>
class TypedAccess {
 public:
  std::int64_t integer(std::string_view key) const { return get<std::int64_t>(key); }
  double number(std::string_view key) const { return get<double>(key); }
  bool flag(std::string_view key) const { return get<bool>(key); }
  const std::string& text(std::string_view key) const { return get<std::string>(key); }
  const std::vector<std::int64_t>& integers(std::string_view key) const {
    return get<std::vector<std::int64_t>>(key);
  }
  const std::vector<double>& numbers(std::string_view key) const { return get<std::vector<double>>(key); }
  const std::vector<std::string>& texts(std::string_view key) const {
    return get<std::vector<std::string>>(key);
  }

  // Returns the bytes of a size such as "80GiB", or nothing if it is empty.
  std::optional<std::int64_t> bytes(std::string_view key) const { return parse_size(text(key)); }
  // Says whether there is a value: not for an optional one that is absent.
  bool has(std::string_view key) const {
    const Entry* const entry = self().find(key);
    return entry && entry->value;
  }
  // Returns a text such as "default", "recipe.toml:14" or "--set optimizer.lr=1e-4".
  std::string origin(std::string_view key) const { return describe(self().entry(key).at); }

 private:
  const Self& self() const { return static_cast<const Self&>(*this); }

  template <class T>
  const T& get(std::string_view key) const {
    const Entry& entry = self().entry(key);
    PRUN_CHECK(entry.value, "recipe option '", entry.path, "' is absent; ask has() first");
    const T* const value = std::get_if<T>(&*entry.value);
    PRUN_CHECK(value, "recipe option '", entry.path, "' is of type ", name_of(entry.option.type));
    return *value;
  }
};

// Represents one table of a recipe: "model", "strategy.0". It keeps what it refers to alive.
class RecipeSection : public TypedAccess<RecipeSection> {
 public:
  const std::string& path() const { return info().path; }
  const std::string& name() const { return info().rule->name; }
  const std::string& plugin() const { return info().plugin; }
  // Returns a label such as "[model]", "[[strategy]]" or "[comm.ucx]".
  std::string label() const { return info().rule->list ? info().rule->label() : "[" + path() + "]"; }
  // Returns the place of its table, which has no source if none is written.
  const Location& place() const { return info().at; }
  // Returns core options first, then the plugin's, then free names (mesh axes) in the order they were
  // written.
  std::span<const Entry> entries() const;

  const Entry* find(std::string_view key) const;
  const Entry& entry(std::string_view key) const;

 private:
  friend class Recipe;
  RecipeSection(std::shared_ptr<const ResolvedRecipe> resolved, std::size_t index)
      : resolved_(std::move(resolved)), index_(index) {}
  const SectionInfo& info() const { return resolved_->sections[index_]; }

  std::shared_ptr<const ResolvedRecipe> resolved_;
  std::size_t index_;
};

// Holds a recipe, which is immutable and cheap to copy. Keys are dotted paths: "optimizer.schedule.warmup",
// "strategy.0.stage".
class Recipe : public TypedAccess<Recipe> {
 public:
  // Loads a recipe; `overrides` are texts such as "optimizer.lr=3e-4", the later the stronger. Throws
  // bad_input with all problems, not_found if there is no such file. The catalog is kept, and used again by
  // with().
  static Recipe load(const std::filesystem::path& file, std::span<const std::string> overrides,
                     PluginCatalog catalog);
  // Parses a recipe in memory; `name` stands for it in messages. It cannot include files.
  static Recipe parse(std::string text, std::string name, std::span<const std::string> overrides,
                      PluginCatalog catalog);

  // Returns the same recipe with one value changed, checked anew: with("mesh.dp", "1").
  Recipe with(std::string_view path, std::string_view value) const;

  const Entry* find(std::string_view path) const;
  const Entry& entry(std::string_view path) const;

  // Returns a section; one that is a table always exists; an item of a list must.
  RecipeSection section(std::string_view path) const;
  // Returns a table such as [comm.ucx]: the options that the recipe gives to a plugin by its name, if it
  // does.
  std::optional<RecipeSection> plugin_table(std::string_view kind, std::string_view name) const;
  // Returns the items of a list, or the one table of that name.
  std::vector<RecipeSection> sections(std::string_view name) const;
  std::vector<RecipeSection> strategies() const { return sections("strategy"); }
  std::vector<RecipeSection> all_sections() const;

  // Makes a problem that points at a key, for checks that need more than one value. For a key at its default
  // it points at the section. Collect problems in a Diagnostics.
  Problem problem(std::string_view path, std::string message) const;

  // Returns the whole recipe, defaults included, as TOML, with each value's origin in a comment. It parses to
  // the same values.
  std::string resolved_toml() const;

 private:
  struct Input {
    Node tree;
    std::shared_ptr<const Source> main;
    std::size_t sources = 0;
    PluginCatalog catalog;
  };

  std::optional<RecipeSection> find_section(std::string_view path) const;
  static Recipe build(Input input, std::span<const std::string> overrides, Source::Kind kind,
                      Diagnostics& diagnostics);

  std::shared_ptr<const Input> input_;
  std::shared_ptr<const ResolvedRecipe> resolved_;
};

}  // namespace prun::recipe

namespace prun {
using recipe::Diagnostics;
using recipe::parse_schema;
using recipe::PluginCatalog;
using recipe::Problem;
using recipe::Recipe;
using recipe::RecipeSection;
using recipe::Schema;
}  // namespace prun

namespace prun::recipe {

// ------------------------------------------------------------------- placed
// Shows errors that plugins and readers of files state about a section of the recipe at their place in it.

// Marks an error that has line and caret already.
class PlacedError final : public Error {
 public:
  using Error::Error;
};

// Throws, within a handler, the error with line and caret, of the key that it names first, or else of `key`.
// Errors that the recipe's author cannot correct, or that are not of it, are thrown on as they are.
[[noreturn]] void throw_placed(const RecipeSection& section, std::string_view key, const Error& error);

// Returns what `body` returns; its errors are about that section, and if they name no other key of it, about
// `key`.
template <class Body>
decltype(auto) in_section(const RecipeSection& section, Body&& body, std::string_view key = "plugin") {
  try {
    return std::forward<Body>(body)();
  } catch (const PlacedError&) {
    throw;
  } catch (const Error& error) {
    throw_placed(section, key, error);
  }
}

// ------------------------------------------------------------------- renamed keys
// Lists settings of recipes that had another name once, or that a strategy has now. A recipe that uses the
// old name is refused with the new one; what a run or a checkpoint has stored is read as if it had the new
// one.

struct RenamedKey {
  std::string_view path, value;  // value as TOML; empty: any
  // "strategy.NAME.KEY" is a key of the section of a strategy plugin. Without a new path, the setting is how
  // things are without that section. `new_value` is empty if values kept their meaning.
  std::string_view new_path, new_value;

  // Returns "cannot read key 'run.changed': it is called 'run.allow_changed' now; rename it".
  std::string refusal() const;
  bool is_moved() const { return new_path.starts_with("strategy."); }
  std::string_view option() const { return new_path.substr(new_path.rfind('.') + 1); }
  std::string_view plugin() const { return new_path.substr(9, new_path.rfind('.') - 9); }
};

// Returns the rule for a setting by an old name, or null. `value` is TOML.
const RenamedKey* find_renamed(std::string_view path, std::string_view value);

using StoredSettings = std::vector<std::pair<std::string, std::string>>;  // paths and TOML

// Returns a setting that was stored by the name that it has now, unless a strategy has it now: that one
// stays.
std::pair<std::string, std::string> stored_setting(const std::string& path, const std::string& value);
// Returns all settings that were stored by their names of now. Those that a strategy has now are in a section
// behind the other strategies, if the recipe used it.
StoredSettings stored_settings(const StoredSettings& settings);

}  // namespace prun::recipe
