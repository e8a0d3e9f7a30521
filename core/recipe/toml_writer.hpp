// Writes recipes: tables of keys with values, and comments. Nothing in a text or a comment can break out of
// it, wherever it comes from.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "recipe/value.hpp"

namespace prun::recipe {

class TomlWriter {
 public:
  // Begins a table behind an empty line: "optimizer", "tier.nvme".
  TomlWriter& table(std::string_view path);
  // Begins one more table of a list: "strategy", "data.blend".
  TomlWriter& item(std::string_view path);
  // Writes a line such as "lr = 0.0003", with a comment in a column of its own; the key may have dots.
  TomlWriter& value(std::string_view key, const Value& value, std::string_view comment = {});
  // Writes "key = []", also for a list of tables.
  TomlWriter& empty_list(std::string_view key);
  // Writes a comment on a line of its own; a text of several lines has a comment for each.
  TomlWriter& comment(std::string_view text);

  const std::string& text() const { return text_; }

 private:
  TomlWriter& header(std::string_view path, std::string_view open, std::string_view close);

  std::string text_;
};

// Parses one value, as a recipe or to_toml() has it. Returns nothing if the text is anything else, or more.
std::optional<Value> value_of_toml(std::string_view text);

}  // namespace prun::recipe
