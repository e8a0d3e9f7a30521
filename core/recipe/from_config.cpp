#include "recipe/from_config.hpp"

#include <filesystem>

#include "prun/error.hpp"
#include "recipe/value.hpp"

namespace prun::recipe {

namespace {

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

}  // namespace

void take_config(Node& root, const PluginCatalog& catalog, std::size_t& sources, Diagnostics& diagnostics) {
  Member* const model = root.find("model");
  if (!model || model->value.kind != Node::Kind::table || !catalog.model_options) return;
  Node& table = model->value;
  const std::string init = text_at(table, "init"), plugin = text_at(table, "plugin");
  const bool named = !text_at(table, "config").empty();
  if (!named && !has_config(init)) return;
  const std::string key = named ? "config" : "init", file = text_at(table, key);
  const std::string shown = has_config(file) ? (std::filesystem::path(file) / "config.json").string() : file;
  try {
    if (!plugin.empty() && !catalog.schema("model", plugin)) return;  // reported with the section
    for (const auto& [option, text] : catalog.model_options(plugin, file))
      if (!table.find(option)) table.members.push_back(member_from(shown, option, text, sources));
    ++sources;
  } catch (const Error& error) {
    diagnostics.add(table.find(key)->at, error.what());
  }
}

}  // namespace prun::recipe
