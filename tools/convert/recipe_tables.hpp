// Holds the tables of a recipe that is being written: values by their keys, each with its origin.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/toml_writer.hpp"

namespace prun::convert {

class RecipeTables {
 public:
  // Sets "optimizer.lr", "strategy.zero.stage" or "data.blend.1.path". The later value wins.
  void set(std::string_view path, recipe::Value value, std::string_view origin);
  // Adds one more to a list of texts, which has each once.
  void add_text(std::string_view key, std::string_view text, std::string_view origin);
  // Sets a plugin without options: "strategy.data", "observer.console".
  void set_plugin(std::string_view section, std::string_view origin);
  // Keeps the console: a recipe that names an observer gets none by itself.
  void keep_console();
  bool has(std::string_view path) const;
  // Writes the tables in the order in which recipes have them.
  void write(recipe::TomlWriter& out) const;

 private:
  struct Entry {
    std::string key;
    recipe::Value value;
    std::string origin;
  };
  // Is a section of a listed plugin, with its origin even where it has no options.
  struct Section {
    std::string origin;
    std::vector<Entry> entries;
  };

  std::vector<std::string> section_names() const;

  std::map<std::string, Section> sections_;
};

}  // namespace prun::convert
