#include "runs/recipe_lines.hpp"

#include <map>

#include "base/text.hpp"
#include "base/whole_file.hpp"
#include "recipe/renamed_keys.hpp"
#include "runs/text_file.hpp"

namespace prun {
namespace {

// Returns where the comment begins: the first '#' that is in no text.
std::size_t comment_of(std::string_view line) {
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (quote == '"' && line[i] == '\\')
      ++i;
    else if (quote != 0)
      quote = line[i] == quote ? '\0' : quote;
    else if (line[i] == '"' || line[i] == '\'')
      quote = line[i];
    else if (line[i] == '#')
      return i;
  }
  return line.size();
}

RecipeLine with_new_name(RecipeLine line) {
  const std::string old = line.path();
  const auto [path, value] = recipe::stored_setting(old, line.value);
  line.key = path.substr(old.size() - line.key.size());  // a key stays in its section
  line.value = value;
  return line;
}

}  // namespace

std::string RecipeLine::path() const {
  if (section.size() < 4) return key;
  const bool list = section[1] == '[';
  const std::size_t edge = list ? 2 : 1;
  const std::string name = section.substr(edge, section.size() - 2 * edge);
  return name + (list ? "." + std::to_string(item) : std::string()) + "." + key;
}

std::vector<RecipeLine> recipe_lines(std::string_view text) {
  std::vector<RecipeLine> lines;
  std::string section;
  std::map<std::string, std::size_t> items;
  const std::vector<std::string_view> all = split(text, '\n');
  for (std::size_t number = 0; number < all.size(); ++number) {
    const std::string_view line = all[number];
    if (line.empty()) continue;
    const std::size_t comment = comment_of(line), equals = line.find(" = ");
    if (line.front() == '[')
      ++items[section = trim(line.substr(0, comment))];
    else if (equals < comment)
      lines.push_back({section, items[section] - 1, std::string(line.substr(0, equals)),
                       std::string(trim(line.substr(equals + 3, comment - equals - 3))),
                       std::string(trim(line.substr(std::min(line.size(), comment + 1)))), number});
  }
  return lines;
}

std::vector<RecipeLine> recipe_lines_of(const std::filesystem::path& run_folder) {
  std::vector<RecipeLine> lines = recipe_lines(text_in(run_folder / "recipe.toml"));
  for (RecipeLine& line : lines) line = with_new_name(std::move(line));
  return lines;
}

std::string recipe_text_of(const std::filesystem::path& run_folder) {
  const std::string text = whole_file(run_folder / "recipe.toml", most_text);
  std::vector<std::string> lines;
  for (const std::string_view line : split(text, '\n')) lines.emplace_back(line);
  for (const RecipeLine& line : recipe_lines(text))
    if (const RecipeLine now = with_new_name(line); now.key != line.key || now.value != line.value)
      lines[line.number] = now.key + " = " + now.value;
  return join(lines, "\n");
}

}  // namespace prun
