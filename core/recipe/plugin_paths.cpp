// Reads the folders a recipe names for plugins, before any plugin is known.
#include "recipe/overrides.hpp"
#include "recipe/recipe_loader.hpp"
#include "recipe/value.hpp"

namespace prun::recipe {

std::vector<std::filesystem::path> plugin_paths(const std::filesystem::path& file,
                                                std::span<const std::string> overrides) {
  Diagnostics ignored;  // the full reading reports them
  std::vector<std::filesystem::path> paths;
  Node root = load_tree(file, ignored).root;
  for (const std::string& text : overrides) {
    auto source = std::make_shared<Source>();
    source->name = text;
    source->text = text;
    source->kind = Source::Kind::override_;
    if (text.rfind("plugins.", 0) == 0) apply_override(root, source, "", ignored);
  }
  const Member* const plugins = root.find("plugins");
  const Member* const path = plugins ? plugins->value.find("path") : nullptr;
  if (!path) return paths;
  for (const Node& item : path->value.items)
    if (item.kind == Node::Kind::string) paths.emplace_back(item.text);
  if (path->value.kind == Node::Kind::bare)
    if (const auto value = parse_value(OptionType::strings, path->value.text))
      for (const std::string& one : std::get<std::vector<std::string>>(*value)) paths.emplace_back(one);
  return paths;
}

}  // namespace prun::recipe
