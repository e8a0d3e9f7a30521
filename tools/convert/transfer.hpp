// Carries a configuration of another framework into a recipe. Each of its settings is accounted for: carried
// over, not carried over, without effect here, or left open there, with a reason. A setting without account
// is reported as unknown.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "convert/shell_words.hpp"
#include "recipe/toml_writer.hpp"
#include "recipe/value.hpp"

namespace prun::convert {

// ------------------------------------------------------------------- recipe tables
// Holds the tables of a recipe that is being written: values by their keys, each with its origin.

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

// ------------------------------------------------------------------- transfer

enum class Fate : std::uint8_t {
  open,
  carried,
  refused,
  without_effect,
  left_open,  // open there, by a value such as auto, or one that only a run would know: counts as absent
};

struct Setting {
  std::string key, text;
  Fate fate = Fate::open;
  std::string why;  // is given unless it is carried
};

// Says what becomes of a key. The first rule that fits counts.
struct Rule {
  std::string_view key;   // may have a * for any letters
  std::string_view when;  // lists values that it holds for, with | between them; empty: all
  Fate fate;
  std::string_view to;          // if carried, a recipe's key; else why
  std::string_view value = {};  // if carried, the recipe's word for it, where it is another
};

// Holds what the command line gives.
struct Given {
  std::optional<std::int64_t> ranks;
  std::string model;              // a config.json, or a folder with one
  std::vector<std::string> sets;  // such as "optimizer.lr=3e-4"
};

class Transfer {
 public:
  Transfer(std::string framework, const Given& given) : framework_(std::move(framework)), given_(given) {}

  const std::string& framework() const { return framework_; }
  const Given& given() const { return given_; }

  // ------------------------------------------------------------- what is there
  // A later setting of a key takes the place of an earlier one, which is then listed.
  void add(std::string key, std::string text);
  const std::vector<Setting>& settings() const { return settings_; }
  bool has(std::string_view key) const { return find(key) && find(key)->fate != Fate::left_open; }
  bool is_left_open(std::string_view key) const { return find(key) && find(key)->fate == Fate::left_open; }
  // Returns the value of a key, or the fallback.
  std::string text(std::string_view key, std::string_view fallback = {}) const;
  // Throws bad_input where the value is no number, naming the key.
  std::optional<double> number(std::string_view key) const;
  std::int64_t integer(std::string_view key, std::int64_t fallback) const;
  bool is(std::string_view key, std::string_view value) const { return text(key) == value; }

  // ------------------------------------------------------------- what becomes of it
  void carried(std::string_view key) { account(key, Fate::carried, {}); }
  void refuse(std::string_view key, std::string_view why) { account(key, Fate::refused, why); }
  void without_effect(std::string_view key, std::string_view why) { account(key, Fate::without_effect, why); }
  void leave_open(std::string_view key, std::string_view why) { account(key, Fate::left_open, why); }
  // Refuses something that the framework does by default, and prun does not.
  void refuse_default(std::string_view key, std::string_view value, std::string_view why);
  // Applies rules to all settings that are still open.
  void apply(std::span<const Rule> rules);

  // ------------------------------------------------------------- the recipe
  // These are those of RecipeTables.
  void set(std::string_view key, recipe::Value value, std::string_view origin) {
    tables_.set(key, std::move(value), origin);
  }
  void set_text(std::string_view key, std::string_view text, std::string_view origin);
  void add_text(std::string_view key, std::string_view text, std::string_view origin) {
    tables_.add_text(key, text, origin);
  }
  void set_plugin(std::string_view section, std::string_view origin) { tables_.set_plugin(section, origin); }
  void keep_console() { tables_.keep_console(); }
  void write_tables(recipe::TomlWriter& out) const { tables_.write(out); }
  // Takes a setting's value, or the framework's default, as the recipe's; one that is left open is asked for.
  void take(std::string_view from, std::string_view to);
  void take(std::string_view from, std::string_view to, std::string_view framework_default);
  // Says whether the recipe has a value for a key, be it from the command line.
  bool knows(std::string_view key) const;
  // The framework pads the rows of the token table to this multiple, wherever their number comes from.
  void pad_vocabulary(std::int64_t multiple) { rows_multiple_ = multiple; }
  std::int64_t padded(std::int64_t rows) const {
    return (rows + rows_multiple_ - 1) / rows_multiple_ * rows_multiple_;
  }
  std::int64_t rows_multiple() const { return rows_multiple_; }
  // Adds something that the user has to say: "--set run.steps=N", "how many steps".
  void ask(std::string flag, std::string what);
  const std::vector<std::pair<std::string, std::string>>& asked() const { return asked_; }

  // Lists, line by line, what was carried over and what was not.
  std::vector<std::string> account_lines() const;

 private:
  const Setting* find(std::string_view key) const;
  void account(std::string_view key, Fate fate, std::string_view why);

  std::string framework_;
  const Given& given_;
  std::vector<Setting> settings_;
  RecipeTables tables_;
  std::vector<std::pair<std::string, std::string>> asked_;
  std::int64_t rows_multiple_ = 1;
};

// Returns the value that a text of a configuration states: a boolean, a number, a list of either or of texts;
// else the text.
recipe::Value value_of(std::string_view text);

// ------------------------------------------------------------------- sources
// Lists the frameworks whose configurations are read, and converts each of their settings.

// Converts a ds_config, which deepspeed.initialize() and Hugging Face's Trainer take.
void convert_deepspeed(Transfer& transfer, const JsonValue& root);
// Converts the arguments of pretrain_gpt.py, with those of the launcher before it.
void convert_megatron(Transfer& transfer, const ShellCommand& command);
// Converts a train_config of torchtitan.
void convert_torchtitan(Transfer& transfer, const recipe::Node& root);

// Converts a configuration of axolotl.
void convert_axolotl(Transfer& transfer, std::string_view yaml);

}  // namespace prun::convert
